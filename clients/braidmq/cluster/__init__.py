"""Calls about the cluster: topics, segments, files, brokers, and the routes to segments' owners.

`admin.py` has all calls that carry no messages. `routes.py` keeps each topic's route up to date for publishing, and
`discovery.py` learns the cluster's brokers in the background. It builds on `transport`.
"""
