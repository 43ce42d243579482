"""What is wrapped around the serving of all requests: `request_ids` gives each its id, `access_log` logs each."""
