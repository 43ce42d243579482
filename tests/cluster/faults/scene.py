"""The context of a fault: a cluster under a workload, and a random generator for its choices."""

import asyncio
import random
from dataclasses import dataclass, field

from tests.cluster.checker.workload import Workload
from tests.support.cluster.cluster import Cluster
from tests.support.store.object_faults import Objects, Past


@dataclass
class Scene:
    """A cluster under a workload on some topics."""

    cluster: Cluster
    load: Workload
    topics: tuple[str, ...]
    chance: random.Random
    away_seconds: float
    """How long the store or ZooKeeper is away, if that is the fault."""
    objects: Objects = field(init=False)
    pasts: dict[str, Past] = field(init=False)
    """The older versions of each topic's objects, as far as faults have seen them."""

    def __post_init__(self) -> None:
        self.objects = self.cluster.store.objects()
        self.pasts = {topic: Past(self.objects, topic) for topic in self.topics}

    def some_broker(self) -> str:
        """Any broker."""
        return self.chance.choice(list(self.cluster.brokers))

    async def some_owner(self) -> str:
        """The owner of some open segment. Asked at once: a segment may be split or merged between two questions."""
        return self.chance.choice(await self.cluster.owners(self.chance.choice(self.topics)))

    async def some_follower(self) -> str:
        """A follower of some open segment that has, or will soon have, any."""
        await self.cluster.wait_until_replicated(*self.topics)
        for topic in self.chance.sample(self.topics, len(self.topics)):
            for followers in await self.cluster.followers(topic):
                if followers:
                    return self.chance.choice(followers)
        raise AssertionError("no segment has a follower: one topic is to have replicas of 2 or more")

    async def leader(self) -> str:
        """The leader."""
        leader = await self.cluster.leader()
        assert leader is not None, "nobody leads"
        return leader

    async def pause(self, least_sessions: float, most_sessions: float) -> None:
        """Let some time pass, as multiples of the session time-out."""
        await asyncio.sleep(self.cluster.session_timeout_seconds * self.chance.uniform(least_sessions, most_sessions))
