"""The public endpoints under `/v1`, a module for each group of paths.

`publish`, `payload_upload` and `load_file_upload` are hot paths: bare ASGI, called by the dispatcher. Begin with
`publish`. All others are routers of FastAPI; `mq/http/app.py` puts them together.
"""
