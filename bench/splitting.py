"""How long the publishers of a key range wait while it is split or merged, and whether those of others notice."""

import asyncio
import os
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
_PUTS_A_WINDOW = 6
_PUT_BYTES = 4096
Range = tuple[int, int]


@dataclass(slots=True)
class Reshaped:
    """What publishers saw of one kind of change, in seconds, a figure for each time it was made.

    `pauses`: from the first publish that the old segment took no more to the next acknowledged one, of the worst of the
    successors and ways to publish. `waits`: the longest that a publish of the range took. `others`: the same of ranges
    that have nothing to do with it. Each also in as long a time `before`, when nothing happened.
    """

    what: str
    pauses: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    waits_before: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    others_before: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Measured:
    """All kinds of changes; what a put by itself took meanwhile, in seconds; how many publishes were refused."""

    changes: Sequence[Reshaped]
    puts: list[float] = field(default_factory=list)
    refused: int = 0

    @property
    def put_seconds(self) -> float:
        """The median of a put's own time."""
        return statistics.median(self.puts)

    @property
    def target_seconds(self) -> float:
        """The longest that a pause may be."""
        return PUTS_OF_A_PAUSE * self.put_seconds + ALLOWANCE_SECONDS


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
            scene = _Scene(http, load, urls, keys)
            await _puts(store)
            for number in range(rounds):
                for split in range(SPLITS_A_ROUND):
                    tell(f"split and merge {split + 1} of {SPLITS_A_ROUND}, round {number + 1} of {rounds}")
                    await scene.observe(by_hand, scene.split)
                    measured.puts += await _puts(store)
                    await scene.observe(merged, scene.merge)
                tell(f"split by the leader, round {number + 1} of {rounds}")
                await scene.observe(by_leader, scene.have_split)
                await scene.observe(merged, scene.merge)
            measured.refused = load.refused
    finally:
        await store.close()


class _Scene:
    """The topic under its load, and what is done to it."""

    def __init__(self, http: httpx.AsyncClient, load: SteadyLoad, urls: Sequence[str], keys: Sequence[str]) -> None:
        self._http, self._load, self._urls, self._keys = http, load, urls, keys
        self._topic_url = f"{urls[0]}/v1/topics/{_TOPIC}"
        self._chance = random.Random()

    async def observe(self, change: Reshaped, act: Callable[[list[_Open]], Awaitable[None]]) -> None:
        """Look on while nothing happens, then while the topic is changed."""
        before = await self._settled()
        self._enter_elsewhere(before)
        quiet = await self._watch(lambda: asyncio.sleep(_WINDOW_SECONDS))
        busy = await self._watch(lambda: self._act(act, before))
        after = await self._settled()
        _keep(change, before, after, quiet, busy)

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

    def _enter_elsewhere(self, segments: Sequence[_Open]) -> None:
        """Have each key published through some broker that does not own its segment."""
        owners = {key: next(each.url for each in segments if _has(each.range, key)) for key in self._keys}
        others = {key: [url for url in self._urls if url != owner] for key, owner in owners.items()}
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
    change: Reshaped, before: Sequence[_Open], after: Sequence[_Open], quiet: list[Published], busy: list[Published]
) -> None:
    """Add what was seen of one change; a segment that was moved meanwhile for other reasons is left out."""
    old_ranges, new_ranges = {each.range for each in before}, {each.range for each in after}
    gone = [each for each in before if each.range not in new_ranges]
    opened = [each for each in after if each.range not in old_ranges]
    kept = {each.segment for each in before} & {each.segment for each in after}
    if not gone or not opened:
        raise BenchFailed(f"{change.what}: the topic has the same ranges as before")
    start, stop = min(each.range[0] for each in gone), max(each.range[1] for each in gone)
    change.pauses.append(max(_pauses(busy, [each.segment for each in opened])))
    change.waits.append(_longest(each for each in busy if start <= each.slot < stop))
    change.waits_before.append(_longest(each for each in quiet if start <= each.slot < stop))
    change.others.append(_longest(each for each in busy if each.segment in kept))
    change.others_before.append(_longest(each for each in quiet if each.segment in kept))


def _pauses(published: Sequence[Published], successors: Sequence[int]) -> list[float]:
    """For each successor and way to publish: from the first sent that it took to the first that it acknowledged.

    The former came too late for the old segment, so it was held back from the moment it was sent, or from a little
    later: that is counted in.
    """
    taken: dict[tuple[int, str], list[Published]] = {}
    for each in published:
        if each.segment in successors:
            taken.setdefault((each.segment, each.way), []).append(each)
    if {segment for segment, _ in taken} != set(successors):
        raise BenchFailed(f"not all of the segments {list(successors)} took a message")
    return [min(each.acknowledged for each in of) - min(each.sent for each in of) for of in taken.values()]


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


async def _puts(store: Store) -> list[float]:
    """What a put of a small object takes by itself, in seconds, a few times."""
    seconds = []
    for _ in range(_PUTS_A_WINDOW):
        data, began = os.urandom(_PUT_BYTES), time.perf_counter()
        await store.create(f"bench/{data[:16].hex()}", data)
        seconds.append(time.perf_counter() - began)
    return seconds
