"""Producers: they publish messages numbered per key, in one format, and record the outcome of each request."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pyarrow as pa

from tests.cluster.checker.history import Acks, Attempt, Form, Outcome, Position, Sent

ARROW_TYPE = "application/vnd.apache.arrow.stream"
NDJSON_TYPE = "application/x-ndjson"
DETAIL_CHARS = 300
# Nothing was sent: these cannot have stored anything.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass
class Producer:
    """One task that publishes in one form; rows of requests go round its `keys`.

    With `identified` each request carries the producer's id and a sequence, and is sent again, as it was, until it
    is acknowledged or refused for good; without, it is sent once. Of the acknowledged requests of an identified
    producer every `repeat_every`-th is sent once more all the same. `pause_seconds` lie between two requests, which
    begin `every_seconds` apart where answers come in time.
    """

    name: str
    topic: str
    form: Form
    keys: int = 4
    rows: int = 5
    identified: bool = False
    acks: Acks | None = None
    repeat_every: int | None = None
    pause_seconds: float = 0.0
    every_seconds: float = 0.0
    _sent: int = field(default=0, init=False)
    _sequence: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.repeat_every is not None and not self.identified:
            raise ValueError(f"{self.name} repeats requests, which only an identified producer may do")

    def take(self) -> tuple[Sent, ...]:
        """The messages of the next request."""
        count = 1 if self.form == "raw" else self.rows
        numbers = range(self._sent, self._sent + count)
        self._sent += count
        return tuple(Sent(f"{self.name}.{n % self.keys}", n // self.keys) for n in numbers)

    def next_sequence(self) -> int | None:
        """The sequence of the next request; None if the producer has no id."""
        if not self.identified:
            return None
        self._sequence += 1
        return self._sequence

    def repeats(self, sequence: int | None) -> bool:
        """Whether the request is sent once more after it was acknowledged."""
        return self.repeat_every is not None and sequence is not None and sequence % self.repeat_every == 0

    def request(self, url: str, messages: Sequence[Sent], sequence: int | None = None) -> dict[str, Any]:
        """Arguments of the HTTP request."""
        params: dict[str, str] = {"key": messages[0].key} if self.form == "raw" else {}
        if self.acks is not None:
            params["acks"] = self.acks
        if sequence is not None:
            params |= {"producer": self.name, "sequence": str(sequence)}
        content, headers = _BODIES[self.form](messages)
        address = f"{url}/v1/topics/{self.topic}/messages"
        return {"url": address, "params": params, "content": content, "headers": headers}


def arrow_stream(columns: dict[str, list[bytes]]) -> bytes:
    """Binary columns as an Arrow IPC stream."""
    batch = pa.record_batch({name: pa.array(column, pa.binary()) for name, column in columns.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


Body = tuple[bytes, dict[str, str]]


def _raw(messages: Sequence[Sent]) -> Body:
    return messages[0].value, {}


def _row(message: Sent) -> dict[str, str]:
    return {"key": message.key, "value_base64": base64.b64encode(message.value).decode()}


def _json(messages: Sequence[Sent]) -> Body:
    return orjson.dumps({"messages": [_row(m) for m in messages]}), {"content-type": "application/json"}


def _ndjson(messages: Sequence[Sent]) -> Body:
    lines = [orjson.dumps(_row(m), option=orjson.OPT_APPEND_NEWLINE) for m in messages]
    return b"".join(lines), {"content-type": NDJSON_TYPE}


def _arrow(messages: Sequence[Sent]) -> Body:
    columns = {"key": [m.key.encode() for m in messages], "value": [m.value for m in messages]}
    return arrow_stream(columns), {"content-type": ARROW_TYPE}


_BODIES: dict[Form, Callable[[Sequence[Sent]], Body]] = {"raw": _raw, "json": _json, "ndjson": _ndjson, "arrow": _arrow}


async def publish(client: httpx.AsyncClient, url: str, arguments: dict[str, Any], now: Callable[[], float]) -> Attempt:
    """Send one request and return its outcome."""
    started_seconds = now()

    def ended(outcome: Outcome, detail: str, positions: tuple[Position, ...] = (), *, final: bool = False) -> Attempt:
        return Attempt(url, started_seconds, now(), outcome, positions, final, detail[:DETAIL_CHARS])

    try:
        response = await client.post(**arguments)
    except _NEVER_SENT as error:
        return ended("failed", repr(error))
    except httpx.TransportError as error:
        return ended("unknown", repr(error))
    try:
        answer = response.json()
        if response.status_code == 200:
            return ended(
                "acknowledged", "", tuple((p["segment"], p["offset"], p["count"]) for p in answer["positions"])
            )
        retryable = answer.get("retryable") is True
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return ended("unknown", f"{response.status_code}: {error!r}: {response.text}")
    # Without an id a refusal that may be repeated stored nothing. With one it may have been stored in part, as
    # repeating it is safe all the same.
    refused = response.status_code < 500 or (retryable and "sequence" not in arguments["params"])
    final = response.status_code < 500 and not retryable
    return ended("failed" if refused else "unknown", response.text, final=final)
