"""How long the publishers of a key range wait while it is split or merged, and whether those of others notice."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from bench.local_cluster import BenchCluster, local_cluster
from bench.server_process import BenchFailed
from bench.steady_load import ANSWER_SECONDS, Published, SteadyLoad
from filer.slots import equal_ranges, slot_of
from filer.store import Store
from mq.garbage import spare_what_is_loaded

PUT_DELAY_SECONDS = 0.05
PUTS_OF_A_PAUSE = 4
ALLOWANCE_SECONDS = 0.1
SEGMENTS, KEYS_A_SEGMENT = 4, 4
SPLITS_A_ROUND = 8
_TOPIC = "splitting"
# As long before a change as after it.
_WINDOW_SECONDS = 2.0
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 60.0
_PUTS_APART_SECONDS = 0.02
_PUT_BYTES = 4096
Range = tuple[int, int]


@dataclass(slots=True)
class Reshaped:
    """What publishers saw of one kind of change, in seconds, a figure for each time it was made.

    `pauses`: from the last publish that the old segment took to the first that the successor acknowledged, of the worst
    successor. `puts`: the median of what puts by themselves took meanwhile. `waits`: the longest that a publish of the
    range took. `others`: the same of ranges that have nothing to do with it. Each of these two also in as long a time
    `before`, when nothing happened.
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
        """The longest that each pause may be."""
        return [PUTS_OF_A_PAUSE * put_seconds + ALLOWANCE_SECONDS for put_seconds in self.puts]

    @property
    def met(self) -> int:
        """How many pauses were no longer than that."""
        return sum(pause <= target for pause, target in zip(self.pauses, self.targets, strict=True))


@dataclass(slots=True)
class Measured:
    """All kinds of changes, and how many publishes were refused."""

    changes: Sequence[Reshaped]
    refused: int = 0


@dataclass(frozen=True, slots=True)
class _Open:
    """An open segment, as the route shows it."""

    segment: int
    range: Range
    url: str


def measure_splits(*, rounds: int, tell: Callable[[str], None]) -> Measured:
    """Split ranges at random slots and merge them again, by hand and by `min_segments`, under a steady load."""
    measured = Measured([Reshaped("split by hand"), Reshaped("merge by hand"), Reshaped("split by the leader")])
    with local_cluster(put_delay_seconds=PUT_DELAY_SECONDS) as cluster:
        cluster.create_topic(_TOPIC, segments=SEGMENTS, scaling={"enabled": False})
        asyncio.run(_measure(cluster, measured, rounds, tell))
    return measured


async def _measure(cluster: BenchCluster, measured: Measured, rounds: int, tell: Callable[[str], None]) -> None:
    by_hand, merged, by_leader = measured.changes
    store = cluster.open_store()
    urls = [broker.url for broker in cluster.brokers.values()]
    keys = [key for each in equal_ranges(SEGMENTS) for key in _keys_within(*each)]
    try:
        async with httpx.AsyncClient(timeout=ANSWER_SECONDS) as http, SteadyLoad(_TOPIC, keys, urls) as load:
            scene = _Scene(http, store, load, urls, keys)
            spare_what_is_loaded()
            for number in range(rounds):
                for split in range(SPLITS_A_ROUND):
                    tell(f"split and merge {split + 1} of {SPLITS_A_ROUND}, round {number + 1} of {rounds}")
                    await scene.observe(by_hand, scene.split)
                    await scene.observe(merged, scene.merge)
                tell(f"split by the leader, round {number + 1} of {rounds}")
                await scene.observe(by_leader, scene.have_split)
                await scene.observe(merged, scene.merge)
            measured.refused = load.refused
    finally:
        await store.close()


class _Scene:
    """The topic under its load, and what is done to it."""

    def __init__(
        self, http: httpx.AsyncClient, store: Store, load: SteadyLoad, urls: Sequence[str], keys: Sequence[str]
    ) -> None:
        self._http, self._store, self._load, self._urls, self._keys = http, store, load, urls, keys
        self._topic_url = f"{urls[0]}/v1/topics/{_TOPIC}"
        self._chance = random.Random()
        self._puts: list[tuple[float, float]] = []

    async def observe(self, change: Reshaped, act: Callable[[list[_Open]], Awaitable[None]]) -> None:
        """Look on while nothing happens, then while the topic is changed."""
        before = await self._settled()
        self._enter(before)
        quiet = await self._watch(lambda: asyncio.sleep(_WINDOW_SECONDS))
        putting = asyncio.create_task(self._put_on())
        busy = await self._watch(lambda: self._act(act, before))
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        after = await self._settled()
        _keep(change, before, after, quiet, busy, self._puts)

    async def _put_on(self) -> None:
        """Put small objects by themselves, one after the other."""
        self._puts.clear()
        while True:
            name, began = f"bench/{self._chance.randbytes(16).hex()}", time.perf_counter()
            await self._store.create(name, self._chance.randbytes(_PUT_BYTES))
            self._puts.append((began, time.perf_counter()))
            await asyncio.sleep(_PUTS_APART_SECONDS)

    async def _act(self, act: Callable[[list[_Open]], Awaitable[None]], before: list[_Open]) -> None:
        began = time.perf_counter()
        await act(before)
        await asyncio.sleep(began + _WINDOW_SECONDS - time.perf_counter())

    async def _watch(self, meanwhile: Callable[[], Awaitable[None]]) -> list[Published]:
        """What is sent in that time, once it has been acknowledged."""
        self._load.published.clear()
        began = time.perf_counter()
        await meanwhile()
        ended = time.perf_counter()
        await self._load.answered()
        return [each for each in self._load.published if began <= each.sent <= ended]

    async def _settled(self) -> list[_Open]:
        """The open segments once all brokers have shown the same ones twice in a row."""
        last: list[_Open] = []
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while time.perf_counter() < deadline:
            seen = [await self._route(url) for url in self._urls]
            if all(each == last for each in seen):
                return last
            last = seen[0]
            await asyncio.sleep(_LOOK_SECONDS)
        raise BenchFailed(f"the brokers did not agree on the topic's segments within {_PATIENCE_SECONDS:g} seconds")

    async def _route(self, url: str) -> list[_Open]:
        document = await self._answer(self._http.get(f"{url}/v1/topics/{_TOPIC}/route"))
        return [_Open(each["segment"], tuple(each["range"]), each["owner"]["url"]) for each in document["segments"]]

    def _enter(self, segments: Sequence[_Open]) -> None:
        """Publish to each segment at its owner, and each key through some other broker."""
        owners = {key: next(each.url for each in segments if _has(each.range, key)) for key in self._keys}
        others = {key: [url for url in self._urls if url != owner] for key, owner in owners.items()}
        self._load.owned = [(each.url, [key for key in self._keys if _has(each.range, key)]) for each in segments]
        self._load.entries = {key: self._chance.choice(urls) for key, urls in others.items()}

    async def split(self, segments: Sequence[_Open]) -> None:
        """Cut some segment at a random slot that leaves a key on either side."""
        chosen = self._chance.choice(segments)
        slots = sorted(slot_of(key.encode()) for key in self._keys if _has(chosen.range, key))
        cut = self._chance.randint(slots[0] + 1, slots[-1])
        await self._answer(self._http.post(f"{self._topic_url}/segments/{chosen.segment}/split", json={"at": [cut]}))

    async def merge(self, segments: Sequence[_Open]) -> None:
        """Make one again of the two that came of a split: of the narrowest and its other half."""
        await self._configure(min_segments=1)
        whole = equal_ranges(SEGMENTS)
        left, right = sorted((each for each in segments if each.range not in whole), key=lambda each: each.range)
        await self._answer(
            self._http.post(f"{self._topic_url}/segments/{left.segment}/merge", json={"with": right.segment})
        )

    async def have_split(self, segments: Sequence[_Open]) -> None:
        """Ask for one segment more, and wait until the leader has cut one."""
        await self._configure(min_segments=len(segments) + 1)
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while len(await self._route(self._urls[0])) == len(segments):
            if time.perf_counter() > deadline:
                raise BenchFailed(f"the leader split nothing within {_PATIENCE_SECONDS:g} seconds")
            await asyncio.sleep(_LOOK_SECONDS)
        await asyncio.sleep(_WINDOW_SECONDS / 2)

    async def _configure(self, **config: Any) -> None:
        await self._answer(self._http.put(self._topic_url, json=config))

    async def _answer(self, asked: Awaitable[httpx.Response]) -> Any:
        answer = await asked
        if answer.is_error:
            raise BenchFailed(f"{answer.request.method} {answer.request.url}: {answer.text}")
        return answer.json()


def _keep(
    change: Reshaped,
    before: Sequence[_Open],
    after: Sequence[_Open],
    quiet: list[Published],
    busy: list[Published],
    puts: Sequence[tuple[float, float]],
) -> None:
    """Add what was seen of one change; a segment that was moved meanwhile for other reasons is left out."""
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
    change.puts.append(statistics.median(end - began for began, end in puts if end >= refused and began <= resumed))
    change.waits.append(_longest(each for each in busy if start <= each.slot < stop))
    change.waits_before.append(_longest(each for each in quiet if start <= each.slot < stop))
    change.others.append(_longest(each for each in busy if each.segment in kept))
    change.others_before.append(_longest(each for each in quiet if each.segment in kept))


def _last_taken(published: Sequence[Published], segment: int) -> float:
    """When the last publish was sent straight to the owner that a segment took: it refused none before."""
    taken = [each.sent for each in published if each.segment == segment and each.way == "owner"]
    if not taken:
        raise BenchFailed(f"segment {segment} took no message before it was sealed")
    return max(taken)


def _first_acknowledged(published: Sequence[Published], segment: int) -> float:
    """When the first publish was acknowledged that a segment took."""
    acknowledged = [each.acknowledged for each in published if each.segment == segment]
    if not acknowledged:
        raise BenchFailed(f"segment {segment} took no message")
    return min(acknowledged)


def _longest(published: Iterable[Published]) -> float:
    return max(each.seconds for each in published)


def _has(within: Range, key: str) -> bool:
    return within[0] <= slot_of(key.encode()) < within[1]


def _keys_within(start: int, stop: int) -> list[str]:
    """Keys spread over a range: the first that is found in each of as many parts."""
    parts = [(start + low * (stop - start) // KEYS_A_SEGMENT) for low in range(KEYS_A_SEGMENT + 1)]
    return [_key_within((low, high)) for low, high in pairwise(parts)]


def _key_within(within: Range) -> str:
    number = 0
    while not _has(within, f"key-{number}"):
        number += 1
    return f"key-{number}"
