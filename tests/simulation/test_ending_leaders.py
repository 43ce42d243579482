"""A leader that ends at any step of an early failover: whole brokers in virtual time.

The broker that is failed over lives, refuses the others, and holds what the store does not have.
"""

import asyncio
import contextlib
from typing import Any
from unittest import mock

import httpx

from leader import leader_loop
from leader.policy.placement import early_orphans
from tests.support.thoroughness import few_or_many
from tests.support.virtual.virtual_cluster import SESSION_SECONDS, VirtualCluster
from tests.support.virtual.virtual_time import run_in_virtual_time

BROKERS = ("a", "b", "c", "d")
FINISH_SECONDS = 120.0
# It ends at the line that decides, then so many steps later, and so on until it gets to the end.
STRIDE, FEWEST_STEPS, MOST_STEPS = few_or_many(10, 5), 20, 250


class EndingLeader:
    """Failing over a broker that lives, by a leader that ends a number of steps after it has decided to."""

    def __init__(self, steps: int) -> None:
        self.steps, self.cluster = steps, VirtualCluster()
        self.decided = False

    async def run(self) -> bool:
        """Whether it has ended before all was done."""
        async with self.cluster as cluster:
            await cluster.start(*BROKERS, report_interval=60.0)
            await cluster.create("t", segments=4, acks="replicated", replicas=3)
            told = [await self._publish(n) for n in range(8)]
            # Neither the leader nor the next one.
            victim = next(owner for owner, *_ in await cluster.brokers_of("t") if owner not in ("a", "b"))
            expiring = asyncio.create_task(self._expire_once_ended())
            cluster.stores[victim].hold()
            told += [await self._publish(n) for n in range(8, 16)]
            cluster.mute(victim)
            cluster.refuse(victim, *BROKERS)
            with mock.patch.object(leader_loop, "early_orphans", self._orphans):
                publishing = [asyncio.create_task(self._publish(n)) for n in range(16, 32)]
                async with asyncio.timeout(FINISH_SECONDS):
                    while not self.decided or victim in await self._members():
                        await cluster.clock.sleep(0.05)
                    told += await asyncio.gather(*publishing)
            ended = "a" not in cluster.living
            if ended:
                await expiring
            cluster.answer(victim)
            cluster.stores[victim].release()
            await cluster.settled("t")
            assert await self._read() == sorted(told)
            return ended

    async def _expire_once_ended(self) -> None:
        await self.cluster.network.hosts["a"].ended.wait()
        await self.cluster.clock.sleep(SESSION_SECONDS / 2)
        self.cluster.expire("a")

    async def _members(self) -> set[str]:
        return {name for members in await self.cluster.brokers_of("t") for name in members}

    def _orphans(self, *arguments: Any) -> list[int]:
        """The line at which the leader decides. Without a step left, it ends there."""
        found = early_orphans(*arguments)
        if found and not self.decided:
            self.decided = True
            host = self.cluster.network.hosts["a"]
            host.steps_left = self.steps
            if not self.steps:
                host.end()
        return found

    async def _publish(self, number: int) -> tuple[int, int, int]:
        """One message by the id of its producer, sent again until it is acknowledged: its number and position."""
        asked = {"key": f"k{number}", "producer": f"p{number}", "sequence": "1"}
        while True:
            with contextlib.suppress(httpx.TransportError):
                url = "http://b/v1/topics/t/messages"
                answer = await self.cluster.client.post(url, params=asked, content=b"%d" % number)
                if answer.status_code == 200:
                    (position,) = answer.json()["positions"]
                    return number, position["segment"], position["offset"]
            await self.cluster.clock.sleep(0.1)

    async def _read(self) -> list[tuple[int, int, int]]:
        url = "http://b/v1/topics/t/messages"
        messages = (await self.cluster.client.get(url, params={"limit": 1000})).raise_for_status().json()["messages"]
        return sorted((int(each["value"]), each["segment"], each["offset"]) for each in messages)


def test_a_leader_ends_at_each_step_of_an_early_failover() -> None:
    for steps in range(0, MOST_STEPS, STRIDE):
        if not run_in_virtual_time(EndingLeader(steps).run()):
            assert steps >= FEWEST_STEPS, "an early failover takes more steps than that"
            return
    raise AssertionError("the failover has never come to its end")
