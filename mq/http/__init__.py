"""The HTTP interface of a broker.

Begin with `dispatcher`: it authorizes each request, serves the hot paths itself and passes the rest to the FastAPI app
of `app`. `endpoints/` are the public paths, `internal/` those of other brokers. Shared by all endpoints: `reply` (how
to answer), `problems` (errors), `json_body` (JSON bodies), `formats` (media types of messages) and `start` (where a
read begins).
"""
