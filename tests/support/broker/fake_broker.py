"""A broker in memory behind `httpx.MockTransport`: enough of the HTTP contract to test the client without I/O."""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pyarrow as pa

from filer.keys import is_internal
from filer.slots import equal_ranges, slot_of
from filer.topic.positions import from_marker, to_marker
from tests.support.broker.published_rows import published_rows

WINDOW_SEQUENCES = 1000
NOW_US = 1_700_000_000_000_000
READ_SCHEMA = pa.schema(
    [
        ("segment", pa.int64()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("headers", pa.map_(pa.string(), pa.binary())),
        (
            "_ref",
            pa.struct([("uri", pa.string()), ("size", pa.int64()), ("etag", pa.string()), ("sha256", pa.string())]),
        ),
    ]
)


@dataclass
class Fault:
    """What goes wrong with one request: before it is handled, or (`after`) while its answer is returned."""

    error: Callable[[httpx.Request], Exception] | None = None
    response: httpx.Response | None = None
    after: bool = False

    def strike(self, request: httpx.Request) -> httpx.Response:
        if self.error is not None:
            raise self.error(request)
        assert self.response is not None
        return self.response


def refused(request: httpx.Request) -> Exception:
    failure = httpx.ConnectError("All connection attempts failed", request=request)
    failure.__cause__ = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 8080)")
    return failure


def broken(request: httpx.Request) -> Exception:
    return httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)


def problem(
    status: int, slug: str, *, retryable: bool = False, retry_after: int | None = None, **extras: Any
) -> httpx.Response:
    document = {
        "type": f"urn:braidmq:{slug}",
        "title": slug,
        "status": status,
        "detail": f"about {slug}",
        "retryable": retryable,
        **extras,
    }
    headers = {"content-type": "application/problem+json"}
    if retry_after is not None:
        headers["retry-after"] = str(retry_after)
    return httpx.Response(status, content=orjson.dumps(document), headers=headers)


def streamed(data: bytes, *, etag: str | None = None) -> httpx.Response:
    """An answer whose body has not been read yet."""

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    return httpx.Response(200, content=chunks(), headers={} if etag is None else {"etag": etag})


def _origin(request: httpx.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode()}"


@dataclass
class FakeTopic:
    ranges: list[tuple[int, int]]
    rows: list[list[dict[str, Any]]]
    config: dict[str, Any] = field(default_factory=dict)
    answered: dict[tuple[str, int], list[dict[str, int]]] = field(default_factory=dict)


class FakeBroker:
    """Handles requests; `faults` are used up one a request, None for one that goes well.

    Clients look at routes and at the cluster beside what they are asked for: such requests are in `looks` and not
    in `requests`, and meet no faults.
    """

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.requests: list[httpx.Request] = []
        self.looks: list[httpx.Request] = []
        self.faults: deque[Fault | None] = deque()
        self.uploads: dict[str, bytes] = {}
        self.page_rows = 10_000
        self.answers_at_once = False
        self.published = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.handle)

    def add_topic(self, name: str, *, segments: int = 1) -> FakeTopic:
        self.topics[name] = FakeTopic(equal_ranges(segments), [[] for _ in range(segments)])
        return self.topics[name]

    def values(self, topic: str) -> list[bytes | None]:
        return [row["value"] for rows in self.topics[topic].rows for row in rows]

    async def handle(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        if request.url.path.endswith(("/v1/cluster", "/route")):
            self.looks.append(request)
            return await self._answer(request)
        self.requests.append(request)
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not fault.after:
            return fault.strike(request)
        answer = await self._answer(request)
        return answer if fault is None else fault.strike(request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        parts = request.url.path.partition("/v1/")[2].split("/")
        if parts == ["topics"]:
            return self._list(request)
        if parts == ["cluster"]:
            brokers = [{"broker": "b", "url": _origin(request), "zone": None, "state": "running"}]
            answer = {"cluster": "c", "version": "1", "leader": "b", "brokers": brokers, "transitions": []}
            return httpx.Response(200, json=answer)
        if parts[0] != "topics":
            return problem(404, "not-found")
        name, rest = parts[1], parts[2:]
        if rest == [] and request.method == "PUT":
            config = orjson.loads(request.content)
            self.add_topic(name, segments=config.get("segments", 1)).config = config
        topic = self.topics.get(name)
        if topic is None:
            return problem(404, "topic-not-found")
        if rest == []:
            return self._topic(request, name, topic)
        if rest == ["route"]:
            owner = {"broker": "b", "url": _origin(request)}
            entries = [{"segment": n, "range": list(each), "owner": owner} for n, each in enumerate(topic.ranges)]
            return httpx.Response(200, json={"topic": name, "version": 1, "segments": entries})
        if rest == ["messages"]:
            return await (
                self._publish(request, topic) if request.method == "POST" else self._browse(request, name, topic)
            )
        if rest[0] == "uploads":
            return self._upload(request, name, rest[1:])
        if rest[0] == "messages" and rest[2:] == ["payload"]:
            return self._payload(topic, rest[1])
        return problem(404, "not-found")

    def _list(self, request: httpx.Request) -> httpx.Response:
        after = request.url.params.get("after", "")
        internal = request.url.params.get("internal") == "true"
        names = [name for name in sorted(self.topics) if name > after and (internal or not is_internal(name))]
        page = [{"topic": name, "segments": len(self.topics[name].rows), "version": 1} for name in names[:2]]
        return httpx.Response(200, json={"topics": page, "next": names[1] if len(names) > 2 else None})

    def _topic(self, request: httpx.Request, name: str, topic: FakeTopic) -> httpx.Response:
        if request.method == "DELETE":
            del self.topics[name]
            return httpx.Response(204)
        segments = [
            {"segment": each, "range": list(topic.ranges[each]), "state": "open", "predecessors": [], "successors": [],
             "brokers": ["b"], "start_offset": 0, "end_offset": None}
            for each in range(len(topic.rows))
        ]  # fmt: skip
        answer = {"topic": name, "config": topic.config, "version": 1, "segments": segments}
        return httpx.Response(201 if request.method == "PUT" else 200, json=answer)

    async def _publish(self, request: httpx.Request, topic: FakeTopic) -> httpx.Response:
        await self.gate.wait()
        params = request.url.params
        producer, sequence = params.get("producer"), int(params.get("sequence", -1))
        if producer is None:
            return httpx.Response(200, json={"positions": self._store(request, topic)})
        if (producer, sequence) not in topic.answered:
            if sequence <= max((n for each, n in topic.answered if each == producer), default=0) - WINDOW_SEQUENCES:
                return problem(409, "sequence-expired")
            topic.answered[producer, sequence] = self._store(request, topic)
        return httpx.Response(200, json={"positions": topic.answered[producer, sequence]})

    def _store(self, request: httpx.Request, topic: FakeTopic) -> list[dict[str, int]]:
        rows = published_rows(request)
        positions: dict[int, list[int]] = {}
        for row in rows:
            key = row["key"].encode() if isinstance(row["key"], str) else row["key"]
            value = row["value"].encode() if isinstance(row["value"], str) else row["value"]
            slot = 0 if key is None else slot_of(key)
            segment = next(n for n, (start, stop) in enumerate(topic.ranges) if start <= slot < stop)
            offset = len(topic.rows[segment])
            positions.setdefault(segment, [offset, 0])[1] += 1
            topic.rows[segment].append(
                {"segment": segment, "_offset": offset, "_timestamp": NOW_US, "key": key, "value": value,
                 "event_time": row.get("event_time"), "headers": row.get("headers"), "_ref": self._ref(row.get("ref"))}
            )  # fmt: skip
        self.published.set()
        return [{"segment": n, "offset": at, "count": count} for n, (at, count) in sorted(positions.items())]

    def _ref(self, ref: dict[str, Any] | None) -> dict[str, Any] | None:
        if ref is None:
            return None
        data = self.uploads[ref["upload"]]
        assert (ref["size"], ref["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        return {
            "uri": f"uploads/{ref['upload']}",
            "size": len(data),
            "etag": f'"{ref["upload"]}"',
            "sha256": ref["sha256"],
        }

    async def _browse(self, request: httpx.Request, name: str, topic: FakeTopic) -> httpx.Response:
        params = request.url.params
        if "marker" in params:
            positions = from_marker(name, params["marker"])
        else:
            latest = params.get("from") == "latest"
            positions = {n: len(rows) if latest else 0 for n, rows in enumerate(topic.rows)}
        limit = min(int(params["limit"]), self.page_rows)
        page = self._page(topic, positions, limit)
        while not page and int(params["wait"]) and not self.answers_at_once:
            self.published.clear()
            await self.published.wait()
            page = self._page(topic, positions, limit)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, READ_SCHEMA) as stream:
            stream.write_table(pa.Table.from_pylist(page, READ_SCHEMA))
        return httpx.Response(
            200, content=sink.getvalue().to_pybytes(), headers={"braid-marker": to_marker(name, positions)}
        )

    def _page(self, topic: FakeTopic, positions: dict[int, int], limit: int) -> list[dict[str, Any]]:
        page: list[dict[str, Any]] = []
        for segment in sorted(positions):
            rows = topic.rows[segment][positions[segment] :][: limit - len(page)]
            positions[segment] += len(rows)
            page.extend(rows)
        return page

    def _upload(self, request: httpx.Request, name: str, rest: list[str]) -> httpx.Response:
        if request.method == "POST":
            upload = f"u{len(self.requests)}"
            answer = {"upload": upload, "url": f"{request.url.copy_with(query=None)}/{upload}", "method": "PUT",
                      "headers": {"x-bound": "1"}, "expires": "2030-01-01T00:00:00Z"}  # fmt: skip
            return httpx.Response(201, json=answer)
        assert request.headers["x-bound"] == "1"
        assert request.headers["content-length"] == str(len(request.content))
        self.uploads[rest[0]] = request.content
        return httpx.Response(201, json={"upload": rest[0]})

    def _payload(self, topic: FakeTopic, message: str) -> httpx.Response:
        segment, offset = message.split("-")
        ref = topic.rows[int(segment)][int(offset)]["_ref"]
        data = self.uploads[ref["uri"].removeprefix("uploads/")]
        return streamed(data, etag=ref["etag"])
