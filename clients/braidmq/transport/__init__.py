"""HTTP to the brokers and the store: requests, retries, and failover from one broker to the next.

`transport.py` is the beginning: `Transport.request` and `Transport.repeat`. `problems.py` turns answers into errors,
`broker_failover.py` decides which broker is tried next. Nothing here knows what a request means.
"""
