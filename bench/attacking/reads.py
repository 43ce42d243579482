"""Attacks by reading: pages again and again, and subscriptions that stall."""

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from bench.attacking.attack import HOST, MIB, NDJSON, TOPIC, Attack, Request, Seen, by_clients, make_topic, publish

_BIG, _BIG_MESSAGES, _BIG_BYTES = "big", 24, 16 * MIB
_MANY, _MANY_REQUESTS, _MANY_ROWS, _MANY_BYTES = "many", 100, 100, 10_000
_SMALL, _SMALL_ROWS = "small", 100_000


def _stall(topic: str) -> Callable[[str, float], Awaitable[Seen]]:
    async def run(url: str, seconds: float) -> Seen:
        seen: Seen = Counter()
        opened = []
        for number in range(200):
            reader, writer = await asyncio.open_connection(HOST, urlsplit(url).port, limit=1024)
            kind = "text/event-stream" if number % 2 else NDJSON
            head = f"GET /v1/topics/{topic}/subscribe?from=earliest HTTP/1.1\r\nhost: localhost\r\naccept: {kind}"
            writer.write(f"{head}\r\n\r\n".encode())
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            opened.append((reader, writer))
        await asyncio.sleep(seconds)
        for _, writer in opened:
            seen["ended" if writer.is_closing() else "open"] += 1
            writer.transport.abort()
        return seen

    return run


def _get(path: str, accept: str = "*/*") -> Callable[[str], Request]:
    return lambda url: (
        lambda session, number: session.get(f"{url}{path.replace('NUMBER', str(number))}", headers={"accept": accept})
    )


def _big_messages(url: str) -> None:
    make_topic(url, _BIG)
    body = gzip.compress(b"a" * _BIG_BYTES)
    for _ in range(_BIG_MESSAGES):
        publish(url, _BIG, body, content_encoding="gzip")


def _many_messages(url: str) -> None:
    make_topic(url, _MANY)
    line = json.dumps({"value": "x" * _MANY_BYTES}) + "\n"
    for _ in range(_MANY_REQUESTS):
        publish(url, _MANY, (line * _MANY_ROWS).encode(), content_type=NDJSON)


def _small_messages(url: str) -> None:
    make_topic(url, _SMALL)
    publish(url, _SMALL, b'{"key":"k","value":"v","headers":{"a":"b"}}\n' * _SMALL_ROWS, content_type=NDJSON)


_OF_SMALL = f"/v1/topics/{_SMALL}/messages"
_OF_OTHERS = f"/v1/topics/{TOPIC}/messages"

ATTACKS = {
    "pages": Attack(
        "24 readers of default pages, 24 messages of 16 KB gzip and 16 MiB",
        by_clients(24, _get(f"/v1/topics/{_BIG}/messages")),
        _big_messages,
    ),
    "streams": Attack("200 subscribers that do not read, messages of 10 KB", _stall(_MANY), _many_messages),
    "big-streams": Attack("200 subscribers that do not read, messages of 16 MiB", _stall(_BIG), _big_messages),
    "long-pages": Attack(
        "24 readers of JSON pages of 10,000 messages", by_clients(24, _get(f"{_OF_SMALL}?limit=10000")), _small_messages
    ),
    "arrow-pages": Attack(
        "24 readers of Arrow pages of 100,000 messages",
        by_clients(24, _get(f"{_OF_SMALL}?limit=100000", "application/vnd.apache.arrow.stream")),
        _small_messages,
    ),
    "subscribers": Attack(
        "24 subscribers that begin again and again, 100,000 messages",
        by_clients(24, _get(f"/v1/topics/{_SMALL}/subscribe?from=earliest", NDJSON)),
        _small_messages,
    ),
    "long-polls": Attack(
        "200 long polls of the topic of the others", by_clients(200, _get(f"{_OF_OTHERS}?from=latest&wait=2"))
    ),
    "times": Attack(
        "24 readers from a time on", by_clients(24, _get(f"{_OF_OTHERS}?from=2020-01-01T00:00:00Z&limit=1"))
    ),
    "markers": Attack("24 readers with markers of their own", by_clients(24, _get(f"{_OF_OTHERS}?marker=NUMBER"))),
}
