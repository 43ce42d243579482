"""Requests to an S3 server, counted as a bill counts them: by kind, and by what the objects are for."""

from collections import Counter
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, unquote

import orjson

COUNTS_PATH = "/_counts"
KINDS = ("PUT", "LIST", "GET", "HEAD", "DELETE")
_SEGMENT_FILES = "/segments/"


def kind_of(method: str, query: str) -> str:
    """One of `KINDS`: listings are GETs of a bucket, and a POST that deletes many objects is a DELETE."""
    names = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
    if method == "GET" and ("list-type" in names or "prefix" in names):
        return "LIST"
    return "DELETE" if method == "POST" and "delete" in names else method


def topic_of(path: str, query: str) -> str:
    """The topic that a request is about; empty where it is about none, or about all."""
    prefix = dict(parse_qsl(query)).get("prefix", "")
    parts = unquote(prefix or path).split("/topics/" if "/topics/" in (prefix or path) else "topics/", 1)
    return parts[1].split("/", 1)[0] if len(parts) > 1 else ""


class RequestCounts:
    """Wraps the WSGI application of an S3 server. `COUNTS_PATH` answers `[[topic, kind, count], …]`, uncounted."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self._application = application
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Count the request and pass it on."""
        path, query = environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        if path == COUNTS_PATH:
            start_response("200 OK", [("Content-Type", "application/json")])
            with self._lock:
                return [orjson.dumps([[*key, count] for key, count in self._counts.items()])]
        with self._lock:
            self._counts[topic_of(path, query), kind_of(environ["REQUEST_METHOD"], query)] += 1
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer
