"""Random splits and merges from several tasks at once, while brokers and consumers are killed.

    storm = Storm(scene, transitions=60)
    await storm.blow()
    print(storm.report())

Each topic is cut up and put together again, between one segment and a dozen, at random slots, through random brokers,
which may not know its newest shape, or be dead. Whatever its choices, they come from the scene's seeded `chance`.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx

from tests.cluster.faults.scene import Scene

HANDS = 3
MOST_OPEN = 12
MOST_CUTS = 3
# Towards the other end of what is allowed, but not straight there.
ONWARDS_CHANCE = 0.8
BETWEEN_CHANGES_SECONDS = (0.0, 0.3)
BETWEEN_BROKER_KILLS_SECONDS = (1.0, 8.0)
# A process takes a second of a processor to start.
BETWEEN_CONSUMER_KILLS_SECONDS = (3.0, 9.0)
DEAD_SESSIONS = (0.0, 1.5)
ASK_SECONDS = 30.0
# Many times the duration on an idle machine.
KILLS_SECONDS, CHANGE_SECONDS = 240.0, 20.0
# Valid refusals for a segment that another task has changed in the meantime.
OVERTAKEN = ("segment-sealed", "not-neighbours", "segment-limit", "transition-under-way")


@dataclass(frozen=True)
class Change:
    """A split or merge to request, the common range of its successors, and where it is to be cut.

    `at` is None where only so many `parts` are asked for: where they are cut is then for the load to say.
    """

    segment: int
    verb: str
    body: dict[str, Any]
    whole: tuple[int, int]
    parts: int
    at: tuple[int, ...] | None

    def is_made_by(self, ranges: Sequence[Sequence[int]]) -> bool:
        """Whether successors with these ranges are as requested."""
        bounds = [start for start, _ in ranges] + [ranges[-1][1]]
        adjoin = all(left[1] == right[0] for left, right in pairwise(ranges))
        as_asked = self.at is None or tuple(bounds[1:-1]) == self.at
        return adjoin and len(ranges) == self.parts and (bounds[0], bounds[-1]) == self.whole and as_asked


class Storm:
    """Runs until enough transitions were made and each kind of kill has happened. `kills` counts them by kind."""

    def __init__(self, scene: Scene, *, transitions: int) -> None:
        self._scene, self._wanted = scene, transitions
        self._made: set[tuple[str, tuple[int, ...]]] = set()
        self._told: Counter[str] = Counter()
        self._growing = dict.fromkeys(scene.topics, True)
        self.kills: Counter[str] = Counter()
        self._kinds = ["owner", "leader", "any broker", *(["consumer"] if scene.load.consumer_processes else [])]

    @property
    def transitions(self) -> int:
        """How many splits and merges were acknowledged."""
        return len(self._made)

    def report(self) -> str:
        """A summary of the changes and kills."""
        told = ", ".join(f"{count} {what}" for what, count in sorted(self._told.items())) or "nothing else"
        kills = ", ".join(f"{kind} {self.kills[kind]} times" for kind in self._kinds)
        return f"{self.transitions} splits and merges (besides {told}); killed {kills}"

    async def blow(self) -> None:
        """Run the storm. At its end every broker runs, and every segment has live brokers.

        Raises `AssertionError` for an answer that should not be, and where it takes for ever.
        """
        seeds = [self._scene.chance.randrange(2**32) for _ in range(HANDS + 2)]
        chances = [random.Random(seed) for seed in seeds]
        async with self._scene.cluster.access.client(timeout=ASK_SECONDS) as client:
            works = [self._change_on(client, chance) for chance in chances[2:]]
            works += [self._kill_brokers(chances[0]), self._kill_consumers(chances[1])]
            tasks = [asyncio.create_task(work) for work in works]
            try:
                async with asyncio.timeout(KILLS_SECONDS + CHANGE_SECONDS * self._wanted):
                    await asyncio.gather(*tasks)
            except TimeoutError:
                raise AssertionError(f"the storm does not end: {self.report()}") from None
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _is_over(self) -> bool:
        return self.transitions >= self._wanted and all(self.kills[kind] for kind in self._kinds)

    # -- shapes --------------------------------------------------------------------------------------------

    async def _change_on(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        while not self._is_over:
            topic = chance.choice(self._scene.topics)
            try:
                await self._change(client, chance, topic, chance.choice(self._scene.cluster.urls))
            except httpx.TransportError:
                self._told["unanswered"] += 1
            await asyncio.sleep(chance.uniform(*BETWEEN_CHANGES_SECONDS))

    async def _change(self, client: httpx.AsyncClient, chance: random.Random, topic: str, url: str) -> None:
        address = f"{url}/v1/topics/{topic}"
        route = await client.get(f"{address}/route")
        assert route.status_code == 200, f"the route of {topic} at {url}: {route.text}"
        change = self._choose(chance, topic, route.json()["segments"])
        answer = await client.post(f"{address}/segments/{change.segment}/{change.verb}", json=change.body)
        said = answer.json()
        if answer.status_code == 200:
            made = [each["range"] for each in said["segments"]]
            assert change.is_made_by(made), f"asked for {change}, made {said}"
            self._made.add((topic, tuple(each["segment"] for each in said["segments"])))
            return
        slug = said["type"].rpartition(":")[2]
        assert answer.status_code == 503 or slug in OVERTAKEN, f"{change} of {topic} at {url}: {said}"
        self._told[slug] += 1

    def _choose(self, chance: random.Random, topic: str, segments: Sequence[dict[str, Any]]) -> Change:
        """The next change of a topic that looks so."""
        if not 1 < len(segments) < MOST_OPEN:
            self._growing[topic] = len(segments) == 1
        splits = self._growing[topic] == (chance.random() < ONWARDS_CHANCE)
        wide = [each for each in segments if each["range"][1] - each["range"][0] > MOST_CUTS]
        if len(segments) == 1 or (splits and wide and len(segments) < MOST_OPEN):
            return _split(chance, chance.choice(wide))
        pair = list(chance.choice(list(pairwise(segments))))
        whole = (pair[0]["range"][0], pair[1]["range"][1])
        chance.shuffle(pair)
        return Change(pair[0]["segment"], "merge", {"with": pair[1]["segment"]}, whole, 1, ())

    # -- kills ---------------------------------------------------------------------------------------------

    async def _kill_brokers(self, chance: random.Random) -> None:
        """One after the other: what is acknowledged as `replicated` outlives each of them, but not all at once."""
        cluster, victims = self._scene.cluster, self._victims()
        while not self._is_over:
            for kind in chance.sample(sorted(victims), len(victims)):
                await asyncio.sleep(chance.uniform(*BETWEEN_BROKER_KILLS_SECONDS))
                name = await victims[kind](chance)
                await cluster.kill(name)
                await asyncio.sleep(cluster.session_timeout_seconds * chance.uniform(*DEAD_SESSIONS))
                await cluster.start(name)
                await cluster.wait_until_served(*self._scene.topics)
                self.kills[kind] += 1
                if self._is_over:
                    return

    def _victims(self) -> dict[str, Callable[[random.Random], Awaitable[str]]]:
        """Who is killed, by kind."""
        cluster = self._scene.cluster

        async def owner(chance: random.Random) -> str:
            return chance.choice(await cluster.owners(chance.choice(self._scene.topics)))

        async def leader(chance: random.Random) -> str:
            return await self._scene.leader()

        async def any_broker(chance: random.Random) -> str:
            return chance.choice(list(cluster.brokers))

        return {"owner": owner, "leader": leader, "any broker": any_broker}

    async def _kill_consumers(self, chance: random.Random) -> None:
        consumers = self._scene.load.consumer_processes
        while consumers and not self._is_over:
            await asyncio.sleep(chance.uniform(*BETWEEN_CONSUMER_KILLS_SECONDS))
            # One that is killed before it has saved a marker would never get anywhere.
            further = [consumer for consumer in consumers if consumer.has_got_on]
            if further and chance.choice(further).kill():
                self.kills["consumer"] += 1


def _split(chance: random.Random, segment: dict[str, Any]) -> Change:
    """At random slots, or into so many parts."""
    start, stop = segment["range"]
    cuts = chance.randint(1, MOST_CUTS)
    if chance.random() < 0.5:
        at = tuple(sorted(chance.sample(range(start + 1, stop), cuts)))
        return Change(segment["segment"], "split", {"at": at}, (start, stop), cuts + 1, at)
    return Change(segment["segment"], "split", {"parts": cuts + 1}, (start, stop), cuts + 1, None)
