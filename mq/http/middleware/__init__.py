"""What is wrapped around the serving of all requests.

`request_ids` gives each its id, `access_log` logs each where that is asked for, `traces` begins its span where it is
traced. `failures` stands within FastAPI: it answers what nobody foresaw.
"""
