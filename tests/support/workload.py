"""A load on a topic over real HTTP, the history of it, and a verdict on what was read back.

    load = Workload([broker.url], "events", producers=[Producer("raw-0", "raw"), Producer("arrow-0", "arrow")])
    async with load.running():
        ...                                   # kill brokers, cut lines; `load.urls` may change meanwhile
    found = await read_topic(broker.url, "events")
    assert judge(load.history, found) == []

Every producer numbers its messages per key, and sends a request only when it knows what became of the last one, so
per key the acknowledged numbers must come back in order. A message is never sent twice: a request whose outcome is
not known counts as one that may be there once, or not at all. Only a producer that `repeats` sends it again, under the
same id, until it is acknowledged.
"""

import asyncio
import base64
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx
import pyarrow as pa

Form = Literal["raw", "json", "arrow"]
Outcome = Literal["acknowledged", "failed", "unknown"]
ARROW_TYPE = "application/vnd.apache.arrow.stream"
PAGE_ROWS = 1000
PAUSE_SECONDS = 0.02
TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True, slots=True, order=True)
class Sent:
    """One message: the `number`-th that its producer sent for that key."""

    key: str
    number: int

    @property
    def value(self) -> bytes:
        """What is published; it names the message."""
        return f"{self.key} {self.number}".encode()


@dataclass(frozen=True, slots=True)
class Found:
    """One message as a reader got it."""

    segment: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Request:
    """What was sent at once, and what became of it; `positions` are (segment, first offset, count)."""

    messages: tuple[Sent, ...]
    outcome: Outcome
    positions: tuple[tuple[int, int, int], ...] = ()
    detail: str = ""


@dataclass
class History:
    """Requests in the order in which their outcomes became known."""

    requests: list[Request] = field(default_factory=list)

    def of(self, *outcomes: Outcome) -> Iterator[Sent]:
        """Messages of the requests that ended so."""
        return (sent for request in self.requests if request.outcome in outcomes for sent in request.messages)

    def count(self, outcome: Outcome) -> int:
        """How many messages ended so."""
        return sum(1 for _ in self.of(outcome))


def judge(history: History, found: Sequence[Found]) -> list[str]:
    """What is wrong with the messages read from a topic's start to its end; empty where nothing is.

    `found` is in the order of reading.
    """
    return [
        *_wrong_messages(history, found),
        *_wrong_order(history, found),
        *_wrong_offsets(found),
        *_wrong_positions(history, found),
    ]


def _wrong_messages(history: History, found: Sequence[Found]) -> Iterator[str]:
    counts = Counter(message.value for message in found)
    for sent in history.of("acknowledged"):
        if not counts[sent.value]:
            yield f"lost: {sent} was acknowledged and is not there"
    for sent in history.of("failed"):
        if counts[sent.value]:
            yield f"not refused: {sent} was answered as certainly not stored and is there"
    known = {sent.value: sent for sent in history.of("acknowledged", "unknown", "failed")}
    for value, count in counts.items():
        if value not in known:
            yield f"never sent: {value!r}"
        elif count > 1:
            yield f"doubled: {known[value]} is there {count} times"


def _wrong_order(history: History, found: Sequence[Found]) -> Iterator[str]:
    """Only of acknowledged messages: one whose outcome was unknown may land after those sent later."""
    acknowledged = {sent.value: sent for sent in history.of("acknowledged")}
    last: dict[str, int] = {}
    for sent in (acknowledged[message.value] for message in found if message.value in acknowledged):
        if sent.number < last.get(sent.key, -1):
            yield f"out of order: {sent} after number {last[sent.key]} of its key"
        last[sent.key] = sent.number


def _wrong_offsets(found: Sequence[Found]) -> Iterator[str]:
    following: dict[int, int] = {}
    for message in found:
        expected = following.get(message.segment, 0)
        if message.offset > expected:
            yield f"gap: segment {message.segment} goes on at {message.offset}, not {expected}"
        elif message.offset < expected:
            yield f"went back: segment {message.segment} gave {message.offset} after {expected - 1}"
        following[message.segment] = max(expected, message.offset + 1)


def _wrong_positions(history: History, found: Sequence[Found]) -> Iterator[str]:
    """Each acknowledged message stands at a position that its own request was told, and at nobody else's."""
    places = {message.value: (message.segment, message.offset) for message in found}
    taken: set[tuple[int, int]] = set()
    for request in history.requests:
        if request.outcome != "acknowledged":
            continue
        told = {(s, o) for s, base, count in request.positions for o in range(base, base + count)}
        if taken & told:
            yield f"used twice: positions {sorted(taken & told)} were given to two requests"
        taken |= told
        for sent in request.messages:
            place = places.get(sent.value)
            if place is not None and place not in told:
                yield f"moved: {sent} stands at {place}, its request was told {request.positions}"


# -- sending -----------------------------------------------------------------------------------------------


@dataclass
class Producer:
    """One task that publishes in one form; rows of JSON and Arrow requests go round its `keys`."""

    name: str
    form: Form
    keys: int = 4
    rows: int = 5
    repeats: bool = False
    _sent: int = 0
    _requests: int = 0

    def take(self) -> tuple[Sent, ...]:
        """The next request's messages."""
        count = 1 if self.form == "raw" else self.rows
        numbers = range(self._sent, self._sent + count)
        self._sent += count
        self._requests += 1
        return tuple(Sent(f"{self.name}.{n % self.keys}", n // self.keys) for n in numbers)

    def request(self, url: str, topic: str, messages: Sequence[Sent]) -> dict[str, Any]:
        """Arguments of the HTTP request that sends what was taken last."""
        named = {"producer": self.name, "sequence": str(self._requests)} if self.repeats else {}
        arguments: dict[str, Any] = {"url": f"{url}/v1/topics/{topic}/messages", "params": named}
        if self.form == "raw":
            return {**arguments, "params": {**named, "key": messages[0].key}, "content": messages[0].value}
        if self.form == "json":
            rows = [{"key": m.key, "value_base64": base64.b64encode(m.value).decode()} for m in messages]
            return {**arguments, "json": {"messages": rows}}
        columns = {"key": [m.key.encode() for m in messages], "value": [m.value for m in messages]}
        return {**arguments, "content": arrow_stream(columns), "headers": {"content-type": ARROW_TYPE}}


def arrow_stream(columns: dict[str, list[bytes]]) -> bytes:
    """Binary columns as an Arrow IPC stream."""
    batch = pa.record_batch({name: pa.array(column, pa.binary()) for name, column in columns.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


class Workload:
    """Producers that publish to one topic until told to stop, each at the broker that served it last."""

    def __init__(self, urls: Sequence[str], topic: str, *, producers: Iterable[Producer]) -> None:
        self.urls = list(urls)
        self.topic = topic
        self.history = History()
        self._producers = list(producers)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Workload"]:
        """Publish while the block runs; every request under way is finished at its end."""
        stop = asyncio.Event()
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client, asyncio.TaskGroup() as group:
            for place, producer in enumerate(self._producers):
                group.create_task(self._produce(client, producer, place, stop))
            try:
                yield self
            finally:
                stop.set()

    async def acknowledged(self, more: int, *, timeout_seconds: float = 30.0) -> None:
        """Wait until that many more messages have been acknowledged."""
        wanted = self.history.count("acknowledged") + more
        async with asyncio.timeout(timeout_seconds):
            while self.history.count("acknowledged") < wanted:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _produce(self, client: httpx.AsyncClient, producer: Producer, place: int, stop: asyncio.Event) -> None:
        while not stop.is_set():
            messages = producer.take()
            outcomes: set[Outcome] = set()
            again = True
            while again:
                arguments = producer.request(self.urls[place % len(self.urls)], self.topic, messages)
                request = await publish(client, arguments, messages)
                outcomes.add(request.outcome)
                if request.outcome != "acknowledged":
                    place += 1
                    await asyncio.sleep(PAUSE_SECONDS)
                again = producer.repeats and request.outcome != "acknowledged" and not stop.is_set()
            if request.outcome == "failed" and "unknown" in outcomes:
                request = replace(request, outcome="unknown")
            self.history.requests.append(request)


async def publish(client: httpx.AsyncClient, arguments: dict[str, Any], messages: tuple[Sent, ...]) -> Request:
    """Send one request and say what became of it."""
    try:
        response = await client.post(**arguments)
    except httpx.ConnectError as error:
        return Request(messages, "failed", detail=repr(error))
    except httpx.TransportError as error:
        return Request(messages, "unknown", detail=repr(error))
    answer = response.json()
    if response.status_code == 200:
        positions = tuple((p["segment"], p["offset"], p["count"]) for p in answer["positions"])
        return Request(messages, "acknowledged", positions)
    # A refusal that may be repeated stored nothing; of any other one cannot tell.
    refused = answer.get("retryable") is True or response.status_code < 500
    return Request(messages, "failed" if refused else "unknown", detail=response.text)


# -- reading -----------------------------------------------------------------------------------------------


async def read_topic(url: str, topic: str) -> list[Found]:
    """Every message of a topic from its start to its end, page by page by marker, in the order given."""
    found: list[Found] = []
    params: dict[str, Any] = {"from": "earliest", "limit": PAGE_ROWS}
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
        while True:
            response = await client.get(f"{url}/v1/topics/{topic}/messages", params=params)
            response.raise_for_status()
            page = response.json()
            found.extend(_found(message) for message in page["messages"])
            if not page["messages"]:
                return found
            params = {"marker": page["marker"], "limit": PAGE_ROWS}


def _found(message: dict[str, Any]) -> Found:
    return Found(message["segment"], message["offset"], _bytes(message, "key"), _bytes(message, "value"))


def _bytes(message: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in message:
        return base64.b64decode(message[f"{name}_base64"])
    text = message.get(name)
    return None if text is None else str(text).encode()
