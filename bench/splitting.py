"""How long publishers of a key range wait while it is split or merged, and whether other publishers notice."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from bench.harness.local_cluster import BenchCluster, local_cluster
from bench.harness.server_process import BenchFailed
from bench.harness.steady_publishers import ANSWER_SECONDS, Published, SteadyPublishers
from filer.slots import equal_ranges, slot_of
from filer.stores.store import Store
from mq.process.garbage import spare_what_is_loaded

PUT_DELAY_SECONDS = 0.05
PUTS_OF_A_PAUSE = 4
ALLOWANCE_SECONDS = 0.1
SEGMENTS, KEYS_A_SEGMENT = 4, 4
SPLITS_A_ROUND = 8
_TOPIC = "splitting"
# As long before a change as after it.
_WINDOW_SECONDS = 2.0
_POLL_SECONDS = 0.1
_TIME_LIMIT_SECONDS = 60.0
_PUTS_APART_SECONDS = 0.02
_PUT_BYTES = 4096
Range = tuple[int, int]


@dataclass(slots=True)
class ChangeTimes:
    """How one kind of change affected publishers, in seconds, one figure per change.

    `pauses`: from the last publish that the old segment accepted to the first that the successor acknowledged, for the
    slowest successor. `puts`: the median duration of separate puts during the pause. `waits`: the longest publish in
    the range. `others`: the longest publish in the ranges that did not change. `waits_before` and `others_before`: the
    same for an equally long time before the change.
    """

    what: str
    pauses: list[float] = field(default_factory=list)
    puts: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    waits_before: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    others_before: list[float] = field(default_factory=list)

    @property
    def targets(self) -> list[float]:
        """The longest allowed duration of each pause."""
        return [PUTS_OF_A_PAUSE * put_seconds + ALLOWANCE_SECONDS for put_seconds in self.puts]

    @property
    def met(self) -> int:
        """How many pauses met their target."""
        return sum(pause <= target for pause, target in zip(self.pauses, self.targets, strict=True))


@dataclass(slots=True)
class Measured:
    """The figures of all kinds of changes, and how many publishes were refused."""

    changes: Sequence[ChangeTimes]
    refused: int = 0


@dataclass(frozen=True, slots=True)
class _Open:
    """An open segment in the route."""

    segment: int
    range: Range
    url: str


def measure_splits(*, rounds: int, show_progress: Callable[[str], None]) -> Measured:
    """Split ranges at random slots and merge them again, by hand and by `min_segments`, under steady traffic."""
    measured = Measured(
        [ChangeTimes("split by hand"), ChangeTimes("merge by hand"), ChangeTimes("split by the leader")]
    )
    with local_cluster(put_delay_seconds=PUT_DELAY_SECONDS) as cluster:
        cluster.create_topic(_TOPIC, segments=SEGMENTS, scaling={"enabled": False})
        asyncio.run(_measure(cluster, measured, rounds, show_progress))
    return measured


async def _measure(
    cluster: BenchCluster, measured: Measured, rounds: int, show_progress: Callable[[str], None]
) -> None:
    by_hand, merged, by_leader = measured.changes
    store = cluster.open_store()
    urls = [broker.url for broker in cluster.brokers.values()]
    keys = [key for each in equal_ranges(SEGMENTS) for key in _keys_within(*each)]
    try:
        async with (
            httpx.AsyncClient(timeout=ANSWER_SECONDS) as http,
            SteadyPublishers(_TOPIC, keys, urls) as publishers,
        ):
            topic = _TopicUnderTraffic(http, store, publishers, urls, keys)
            spare_what_is_loaded()
            for number in range(rounds):
                for split in range(SPLITS_A_ROUND):
                    show_progress(f"split and merge {split + 1} of {SPLITS_A_ROUND}, round {number + 1} of {rounds}")
                    await topic.observe(by_hand, topic.split)
                    await topic.observe(merged, topic.merge)
                show_progress(f"split by the leader, round {number + 1} of {rounds}")
                await topic.observe(by_leader, topic.have_split)
                await topic.observe(merged, topic.merge)
            measured.refused = publishers.refused
    finally:
        await store.close()


class _TopicUnderTraffic:
    """A topic with steady traffic, and the changes made to it."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        store: Store,
        publishers: SteadyPublishers,
        urls: Sequence[str],
        keys: Sequence[str],
    ) -> None:
        self._http, self._store, self._publishers, self._urls, self._keys = http, store, publishers, urls, keys
        self._topic_url = f"{urls[0]}/v1/topics/{_TOPIC}"
        self._chance = random.Random()
        self._puts: list[tuple[float, float]] = []

    async def observe(self, change: ChangeTimes, act: Callable[[list[_Open]], Awaitable[None]]) -> None:
        """Record publishes while nothing happens, then while the topic is changed."""
        before = await self._settled()
        self._enter(before)
        quiet = await self._watch(lambda: asyncio.sleep(_WINDOW_SECONDS))
        putting = asyncio.create_task(self._put_repeatedly())
        busy = await self._watch(lambda: self._act(act, before))
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        after = await self._settled()
        _record(change, before, after, quiet, busy, self._puts)

    async def _put_repeatedly(self) -> None:
        """Put small objects, one after the other."""
        self._puts.clear()
        while True:
            name, started = f"bench/{self._chance.randbytes(16).hex()}", time.perf_counter()
            await self._store.create(name, self._chance.randbytes(_PUT_BYTES))
            self._puts.append((started, time.perf_counter()))
            await asyncio.sleep(_PUTS_APART_SECONDS)

    async def _act(self, act: Callable[[list[_Open]], Awaitable[None]], before: list[_Open]) -> None:
        started = time.perf_counter()
        await act(before)
        await asyncio.sleep(started + _WINDOW_SECONDS - time.perf_counter())

    async def _watch(self, meanwhile: Callable[[], Awaitable[None]]) -> list[Published]:
        """The publishes sent during `meanwhile`, once they are acknowledged."""
        self._publishers.published.clear()
        started = time.perf_counter()
        await meanwhile()
        ended = time.perf_counter()
        await self._publishers.answered()
        return [each for each in self._publishers.published if started <= each.sent <= ended]

    async def _settled(self) -> list[_Open]:
        """The open segments, once all brokers have reported the same ones twice in a row."""
        last: list[_Open] = []
        deadline = time.perf_counter() + _TIME_LIMIT_SECONDS
        while time.perf_counter() < deadline:
            routes = [await self._route(url) for url in self._urls]
            if all(each == last for each in routes):
                return last
            last = routes[0]
            await asyncio.sleep(_POLL_SECONDS)
        raise BenchFailed(f"the brokers did not agree on the topic's segments within {_TIME_LIMIT_SECONDS:g} seconds")

    async def _route(self, url: str) -> list[_Open]:
        document = await self._answer(self._http.get(f"{url}/v1/topics/{_TOPIC}/route"))
        return [_Open(each["segment"], tuple(each["range"]), each["owner"]["url"]) for each in document["segments"]]

    def _enter(self, segments: Sequence[_Open]) -> None:
        """Make publishers send to each segment at its owner, and each key also through another broker."""
        owners = {key: next(each.url for each in segments if _has(each.range, key)) for key in self._keys}
        others = {key: [url for url in self._urls if url != owner] for key, owner in owners.items()}
        self._publishers.owned = [(each.url, [key for key in self._keys if _has(each.range, key)]) for each in segments]
        self._publishers.entries = {key: self._chance.choice(urls) for key, urls in others.items()}

    async def split(self, segments: Sequence[_Open]) -> None:
        """Split a random segment at a random slot that leaves a key on each side."""
        chosen = self._chance.choice(segments)
        slots = sorted(slot_of(key.encode()) for key in self._keys if _has(chosen.range, key))
        cut = self._chance.randint(slots[0] + 1, slots[-1])
        await self._answer(self._http.post(f"{self._topic_url}/segments/{chosen.segment}/split", json={"at": [cut]}))

    async def merge(self, segments: Sequence[_Open]) -> None:
        """Merge the two segments that came from the last split."""
        await self._configure(min_segments=1)
        whole = equal_ranges(SEGMENTS)
        left, right = sorted((each for each in segments if each.range not in whole), key=lambda each: each.range)
        await self._answer(
            self._http.post(f"{self._topic_url}/segments/{left.segment}/merge", json={"with": right.segment})
        )

    async def have_split(self, segments: Sequence[_Open]) -> None:
        """Require one more segment, and wait until the leader has split one."""
        await self._configure(min_segments=len(segments) + 1)
        deadline = time.perf_counter() + _TIME_LIMIT_SECONDS
        while len(await self._route(self._urls[0])) == len(segments):
            if time.perf_counter() > deadline:
                raise BenchFailed(f"the leader split nothing within {_TIME_LIMIT_SECONDS:g} seconds")
            await asyncio.sleep(_POLL_SECONDS)
        await asyncio.sleep(_WINDOW_SECONDS / 2)

    async def _configure(self, **config: Any) -> None:
        await self._answer(self._http.put(self._topic_url, json=config))

    async def _answer(self, request: Awaitable[httpx.Response]) -> Any:
        answer = await request
        if answer.is_error:
            raise BenchFailed(f"{answer.request.method} {answer.request.url}: {answer.text}")
        return answer.json()


def _record(
    change: ChangeTimes,
    before: Sequence[_Open],
    after: Sequence[_Open],
    quiet: list[Published],
    busy: list[Published],
    puts: Sequence[tuple[float, float]],
) -> None:
    """Add the figures of one change. Leave out a segment that was moved for other reasons."""
    old_ranges, new_ranges = {each.range for each in before}, {each.range for each in after}
    gone = [each for each in before if each.range not in new_ranges]
    opened = [each for each in after if each.range not in old_ranges]
    kept = {each.segment for each in before} & {each.segment for each in after}
    if not gone or not opened:
        raise BenchFailed(f"{change.what}: the topic has the same ranges as before")
    start, stop = min(each.range[0] for each in gone), max(each.range[1] for each in gone)
    refused = min(_last_taken(busy, each.segment) for each in gone)
    resumed = max(_first_acknowledged(busy, each.segment) for each in opened)
    change.pauses.append(resumed - refused)
    change.puts.append(
        statistics.median(end - started for started, end in puts if end >= refused and started <= resumed)
    )
    change.waits.append(_longest(each for each in busy if start <= each.slot < stop))
    change.waits_before.append(_longest(each for each in quiet if start <= each.slot < stop))
    change.others.append(_longest(each for each in busy if each.segment in kept))
    change.others_before.append(_longest(each for each in quiet if each.segment in kept))


def _last_taken(published: Sequence[Published], segment: int) -> float:
    """When the last publish that a segment accepted was sent straight to the owner. It refused none before."""
    taken = [each.sent for each in published if each.segment == segment and each.variant == "owner"]
    if not taken:
        raise BenchFailed(f"segment {segment} took no message before it was sealed")
    return max(taken)


def _first_acknowledged(published: Sequence[Published], segment: int) -> float:
    """When the first publish that a segment accepted was acknowledged."""
    acknowledged = [each.acknowledged for each in published if each.segment == segment]
    if not acknowledged:
        raise BenchFailed(f"segment {segment} took no message")
    return min(acknowledged)


def _longest(published: Iterable[Published]) -> float:
    return max(each.seconds for each in published)


def _has(within: Range, key: str) -> bool:
    return within[0] <= slot_of(key.encode()) < within[1]


def _keys_within(start: int, stop: int) -> list[str]:
    """Keys spread over a range: one in each of `KEYS_A_SEGMENT` equal parts."""
    parts = [(start + low * (stop - start) // KEYS_A_SEGMENT) for low in range(KEYS_A_SEGMENT + 1)]
    return [_key_within((low, high)) for low, high in pairwise(parts)]


def _key_within(within: Range) -> str:
    number = 0
    while not _has(within, f"key-{number}"):
        number += 1
    return f"key-{number}"
