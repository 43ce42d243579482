"""Publishers of a topic and members of its stream group that come and go, which write down what they see."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.cluster.group_storms.asking import Asking
from tests.cluster.group_storms.common_history import Fault
from tests.cluster.group_storms.publishing import Publishing
from tests.cluster.group_storms.stream_history import ChangeName, Described, StreamHistory
from tests.cluster.group_storms.stream_member import StreamMember
from tests.cluster.group_storms.stream_verdict import around, judge
from tests.cluster.group_storms.verdict import Verdict
from tests.support.cluster.cluster import Cluster

SESSION_SECONDS = 2
ANSWER_SECONDS = 3.0
"""A member does not wait long for a broker that stands still: its session runs."""
NAMES = [f"m{number}" for number in range(7)]
FEWEST, MOST = 3, 6
PAUSE_SESSIONS = (0.5, 1.6)
BETWEEN_CHANGES_SECONDS = (0.2, 3.0)
DESCRIBE_SECONDS = 0.2
DONE_SECONDS = 120


class StreamLoad:
    """Publishers and members on a topic with a group `g`, through brokers at random. Members come and go by `seed`."""

    consumer_processes: Sequence[Any] = ()

    def __init__(self, urls: Callable[[], Sequence[str]], topic: str, *, seed: int, publishers: int = 2) -> None:
        self.topic, self._publishers = topic, publishers
        self.topics = (topic,)
        self._group = f"/v1/topics/{topic}/groups/g"
        self._chance = random.Random(seed)
        self._asking = Asking(urls, self._chance)
        self._members_asking = Asking(urls, self._chance, timeout_seconds=ANSWER_SECONDS)
        self.history = StreamHistory()
        self._publishing = Publishing(
            self._asking, topic, self._chance, self.history.published, self.history.wrong_answers
        )
        self._members: dict[str, StreamMember] = {}

    async def create(self, cluster: Cluster, **settings: Any) -> None:
        """Make the topic."""
        await cluster.create_topic(self.topic, **settings)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A context in which they run. At its end all is done. Raises `TimeoutError` if it does not get so."""
        settings = {"mode": "stream", "session_seconds": SESSION_SECONDS}
        await self._asking.until_answered("PUT", self._group, json=settings)
        for name in NAMES[:FEWEST]:
            self._start(name)
        publishers = [asyncio.create_task(self._publishing.publish(number)) for number in range(self._publishers)]
        churning, watching = asyncio.create_task(self._churn()), asyncio.create_task(self._watch())
        try:
            yield
            self._publishing.goes_on = False
            await asyncio.gather(*publishers)
            churning.cancel()
            await asyncio.gather(churning, return_exceptions=True)
            await self._until_done()
            await asyncio.gather(*(member.leave() for member in self._members.values()))
        except BaseException:
            # Brokers may be gone: whoever asks them would ask for ever.
            for task in publishers:
                task.cancel()
            raise
        finally:
            self._publishing.goes_on = False
            churning.cancel()
            watching.cancel()
            tasks = [*publishers, churning, watching]
            ends = [member.kill() for member in self._members.values()]
            outcomes = await asyncio.gather(*tasks, *ends, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._asking.close()
        await self._members_asking.close()

    async def each_acknowledged(self, count: int, *, timeout_seconds: float = 60.0) -> None:
        """Wait until so many messages more of each publisher were published, and some more were read and committed."""
        published, read, committed = (
            len(each) for each in (self.history.published, self.history.read, self.history.committed)
        )
        async with asyncio.timeout(timeout_seconds):
            while (
                len(self.history.published) < published + count * self._publishers
                or len(self.history.read) == read
                or not any(each.held for each in self.history.committed[committed:])
            ):
                await asyncio.sleep(0.05)

    def struck(self, name: str, began_at: float) -> None:
        """A fault has been, from then until now."""
        self.history.faults.append(Fault(name, began_at, time.monotonic()))

    async def verdict(self) -> Verdict:
        """Whether all this may be."""
        return judge(self.history)

    def around(self, complaint: str) -> list[str]:
        """Everything that was seen of what a complaint names."""
        return around(self.history, complaint)

    async def _until_done(self) -> None:
        """Wait until nothing is left in the group."""
        async with asyncio.timeout(DONE_SECONDS):
            while (await self._described())["lag"]["messages"]:
                await asyncio.sleep(DESCRIBE_SECONDS)

    async def _watch(self) -> None:
        while True:
            await self._described()
            await asyncio.sleep(DESCRIBE_SECONDS)

    async def _described(self) -> dict[str, Any]:
        asked_at = time.monotonic()
        answer = await self._asking.until_answered("GET", self._group)
        told: dict[str, Any] = answer.raise_for_status().json()
        positions = {each["segment"]: each["position"] for each in told["segments"]}
        self.history.described.append(Described(positions, asked_at, time.monotonic()))
        return told

    # -- members ---------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        self._members[name] = StreamMember(
            self._members_asking, self.topic, name, self.history, random.Random(self._chance.random())
        )

    async def _churn(self) -> None:
        """Have members join, leave, be killed, start again, stand still and be cut off, for ever."""
        while True:
            await asyncio.sleep(self._chance.uniform(*BETWEEN_CHANGES_SECONDS))
            names = list(self._members)
            possible: list[ChangeName] = ["restart", "pause", "cut"]
            possible += ["join", "join"] if len(names) < MOST else []
            possible += ["leave", "kill"] if len(names) > FEWEST else []
            await self._change(self._chance.choice(possible), self._chance.choice(names))

    async def _change(self, change: ChangeName, name: str) -> None:
        if change == "join":
            self._start(self._chance.choice([each for each in NAMES if each not in self._members]))
            return
        member, began_at = self._members[name], time.monotonic()
        match change:
            case "leave":
                await member.leave()
                del self._members[name]
                return
            # Whoever is killed is none of those that leave at the end, also if the storm ends at that moment.
            case "kill":
                del self._members[name]
                await member.kill()
            case "restart":
                del self._members[name]
                await member.kill()
                self._start(name)
            case "pause":
                member.pause()
                try:
                    await asyncio.sleep(SESSION_SECONDS * self._chance.uniform(*PAUSE_SESSIONS))
                finally:
                    member.resume()
            case "cut":
                member.cut_off()
                try:
                    await asyncio.sleep(SESSION_SECONDS * self._chance.uniform(*PAUSE_SESSIONS))
                finally:
                    member.heal()
        member.was(change, began_at)
