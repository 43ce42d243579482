"""What is wrapped around the serving of all requests.

`request_ids` gives each its id, `traces` begins its span where it is traced, `access_log` logs each.
"""
