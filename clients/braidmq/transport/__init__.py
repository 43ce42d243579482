"""HTTP to the brokers and the store: requests, retries, and failover from one broker to the next.

Begin with `transport.py`: `Transport.request` and `Transport.repeat`. `problems.py` turns answers into errors,
`broker_failover.py` decides which broker is tried next. Nothing here knows the meaning of a request.
"""
