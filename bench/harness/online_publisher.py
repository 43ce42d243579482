"""A publisher of single messages, and how long it waits for its answers."""

import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

PUBLISHES_PER_SECOND = 100
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Published:
    """One acknowledged message: when it was sent and acknowledged, and its segment."""

    sent: float
    acknowledged: float
    segment: int


class OnlinePublisher:
    """Publishes at an even pace within `async with`, however long the answers take."""

    def __init__(self, url: str, topic: str) -> None:
        self.published: list[Published] = []
        self._url = f"{url}/v1/topics/{topic}/messages"
        self._unanswered: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "OnlinePublisher":
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
        self._publishing = asyncio.create_task(self._publish_steadily())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._publishing.cancel()
        await asyncio.gather(*self._unanswered)
        await self._http.close()

    async def _publish_steadily(self) -> None:
        started = time.perf_counter()
        for number in itertools.count():
            await asyncio.sleep(max(0.0, started + number / PUBLISHES_PER_SECOND - time.perf_counter()))
            once = asyncio.create_task(self._publish(number))
            self._unanswered.add(once)
            once.add_done_callback(self._unanswered.discard)

    async def _publish(self, number: int) -> None:
        sent = time.perf_counter()
        while True:
            async with self._http.post(self._url, params={"key": f"user-{number}"}, data=b"online") as answer:
                document = await answer.json(content_type=None)
                if answer.status == 200:
                    break
            await asyncio.sleep(0.01)
        self.published.append(Published(sent, time.perf_counter(), document["positions"][0]["segment"]))


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds that publishers waited for answers, without the pause of a transition, which is `pause_ms`."""

    p50_ms: float
    p99_ms: float
    pause_ms: float
    count: int


def waits_of(published: Sequence[Published], started: float, ended: float) -> Waits:
    """The waits of messages sent from `started` to `ended`, without those in flight during a change of segments."""
    sent_then = sorted((one for one in published if started <= one.sent < ended), key=lambda one: one.acknowledged)
    pauses = [
        (before.acknowledged, after.acknowledged)
        for before, after in itertools.pairwise(sent_then)
        if after.segment > before.segment
    ]
    kept = [one for one in sent_then if not any(one.sent < stop and one.acknowledged > start for start, stop in pauses)]
    waits_ms = [(one.acknowledged - one.sent) * 1000 for one in kept]
    pause_ms = max((stop - start) * 1000 for start, stop in pauses) if pauses else 0.0
    return Waits(statistics.median(waits_ms), statistics.quantiles(waits_ms, n=100)[98], pause_ms, len(kept))
