"""The HTTP interface of a broker.

Begin with `dispatcher`: it asks the `guard` whether a request is allowed, serves the hot paths itself and passes the
rest to the FastAPI app of `app`. `fast_path/` serves most publishes before all of that. `endpoints/` has the public
paths, `internal/` those of other brokers. Shared by all endpoints: `reply` (how to answer), `problems` (errors),
`json_body` (JSON bodies) and `start` (where a read begins). `mq/forms` has what bodies and messages look like.
"""
