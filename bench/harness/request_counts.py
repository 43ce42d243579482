"""Requests to an S3 server, counted as a bill counts them: by kind."""

from collections import Counter
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl

import orjson

COUNTS_PATH = "/_counts"
KINDS = ("PUT", "LIST", "GET", "HEAD", "DELETE")


def kind_of(method: str, query: str) -> str:
    """One of `KINDS`: listings are GETs of a bucket, and a POST that deletes many objects is a DELETE."""
    names = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
    if method == "GET" and ("list-type" in names or "prefix" in names):
        return "LIST"
    return "DELETE" if method == "POST" and "delete" in names else method


class RequestCounts:
    """Wraps the WSGI application of an S3 server. `COUNTS_PATH` answers `{kind: count, …}`, uncounted."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self._application = application
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Count the request and pass it on."""
        if environ["PATH_INFO"] == COUNTS_PATH:
            start_response("200 OK", [("Content-Type", "application/json")])
            with self._lock:
                return [orjson.dumps(self._counts)]
        with self._lock:
            self._counts[kind_of(environ["REQUEST_METHOD"], environ.get("QUERY_STRING", ""))] += 1
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer
