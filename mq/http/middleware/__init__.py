"""The wrappers around the serving of all requests.

`request_ids` gives each request its id, `access_log` logs each if that is on, `traces` begins the span of a traced one.
`failures` stands within FastAPI: it answers unforeseen errors.
"""
