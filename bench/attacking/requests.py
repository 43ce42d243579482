"""Attacks by what requests say and carry."""

import gzip
import io
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from bench.attacking.attack import MIB, NDJSON, TOPIC, Attack, Request, Seen, at_once, bodies, by_clients, make_topic

_BOMBED, _JSON_TOPIC = "bombed", "bombed-json"
_JSON, _ARROW = "application/json", "application/vnd.apache.arrow.stream"
_EMPTY_LINE = b'{"value":""}\n'


def _wide_topics(segments: int) -> Callable[[str, float], Awaitable[Seen]]:
    body = {"segments": segments, "max_segments": segments}
    return at_once([("PUT", f"/v1/topics/wide-{number}", body) for number in range(5)])


def _again(method: str, path: str, body: Any = None, clients: int = 20) -> Callable[[str, float], Awaitable[Seen]]:
    def request(url: str) -> Request:
        return lambda session, number: session.request(method, f"{url}{path.replace('NUMBER', str(number))}", json=body)

    return by_clients(clients, request)


def _lists() -> bytes:
    return b'{"messages": [' + b"[]," * (20 * MIB) + b"[]]}"


def _deep_lists() -> bytes:
    return b'{"messages": [{"value": ' + b"[" * 60_000 + b"]" * 60_000 + b"}]}"


def _lines(size_bytes: int) -> bytes:
    return _EMPTY_LINE * (size_bytes // len(_EMPTY_LINE))


def _headers() -> bytes:
    headers = b",".join(b'"%d":""' % number for number in range(5_000))
    line = b'{"value":"","headers":{' + headers + b"}}\n"
    return line * (60 * MIB // len(line))


def _arrow(value: pa.Array, **options: Any) -> bytes:
    batch = pa.record_batch({"value": value})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _arrow_bomb() -> bytes:
    return _arrow(pa.array([b"x" * MIB] * 512), compression="zstd")


def _arrow_json() -> bytes:
    return _arrow(pa.array(["1"] * 800_000))


def _arrow_dictionary() -> bytes:
    indices = pa.array([0] * 1_000_000, pa.int32())
    return _arrow(pa.DictionaryArray.from_arrays(indices, pa.array([b"x" * MIB])))


def _arrow_rows() -> bytes:
    return _arrow(pa.array([b""] * 1_000_000))


def _ready(url: str) -> None:
    make_topic(url, _BOMBED)
    make_topic(url, _JSON_TOPIC, value_type="json")


def _of_bodies(what: str, content_type: str, body: Callable[[], bytes], **headers: str) -> Attack:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return Attack(f"4 bodies at a time of {what}", bodies(_BOMBED, content_type, body, sent), _ready)


ATTACKS = {
    "segments": Attack("5 PUTs with 4,096 segments", _wide_topics(4096)),
    "wide": Attack("5 PUTs with 1,024 segments", _wide_topics(1024)),
    "paths": Attack(
        "1,000 paths of 60 KB", at_once([("GET", f"/v1/topics/{n}{'x' * 60_000}", None) for n in range(1000)])
    ),
    "lists": _of_bodies("60 MiB of empty lists", _JSON, _lists),
    "deep-lists": _of_bodies("60,000 lists in each other", _JSON, _deep_lists),
    "rows": _of_bodies("60 MiB of empty messages", NDJSON, lambda: _lines(60 * MIB)),
    "allowed-rows": _of_bodies("190,000 empty messages", NDJSON, lambda: _EMPTY_LINE * 190_000),
    "headers-of-messages": _of_bodies("messages with 5,000 headers", NDJSON, _headers),
    "inflated": _of_bodies(
        "60 MiB of empty messages, as gzip", NDJSON, lambda: gzip.compress(_lines(60 * MIB)), content_encoding="gzip"
    ),
    "inflated-values": _of_bodies(
        "60 MiB, as gzip", "text/plain", lambda: gzip.compress(bytes(60 * MIB)), content_encoding="gzip"
    ),
    "arrow-bombs": _of_bodies("Arrow of 512 MiB in 50 KB of zstd", _ARROW, _arrow_bomb),
    "arrow-values": Attack(
        "4 bodies at a time of 800,000 values of JSON as Arrow, 4 MB", bodies(_JSON_TOPIC, _ARROW, _arrow_json), _ready
    ),
    "arrow-dictionaries": _of_bodies("Arrow, a million times the same MiB", _ARROW, _arrow_dictionary),
    "arrow-rows": _of_bodies("a million empty messages of Arrow", _ARROW, _arrow_rows),
    "names": Attack("20 clients ask for topics that do not exist", _again("GET", "/v1/topics/none-NUMBER/messages")),
    "ids": Attack(
        "20 clients ask for messages that do not exist", _again("GET", f"/v1/topics/{TOPIC}/messages/0-NUMBER9")
    ),
    "unknown": Attack("20 clients ask for paths that do not exist", _again("GET", "/nothing/NUMBER")),
    "scrapes": Attack("20 clients scrape the metrics", _again("GET", "/metrics")),
    "openapi": Attack("20 clients get the description of the interface", _again("GET", "/openapi.json")),
    "topics": Attack("20 clients create topics", _again("PUT", "/v1/topics/made-NUMBER")),
    "uploads": Attack("20 clients begin uploads", _again("POST", f"/v1/topics/{TOPIC}/uploads", {"size": 11})),
}
