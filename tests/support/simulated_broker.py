"""A broker without HTTP and without threads: the real topics, transitions, loads and upkeep over any store and clock.

Several of them know of each other by a shared list of who is alive, and of a topic's changes only by reading its
record: so each may be as stale as it likes. None asks another one to seal what it owns: the store decides between them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from filer.catalogue import Catalogue
from filer.clock import Clock
from filer.errors import LoadRefused
from filer.load_check import check_load_file
from filer.row_group_lots import Ranges
from filer.segment_reader import SegmentReader
from filer.segment_writer import WriterSettings, WriterState
from filer.store import Store
from filer.topic_state import Segment, TopicState
from filer.turns import Turns
from leader.coordinator import BrokerInfo, InProcessCoordinator
from leader.load_table import LoadTable
from mq.copies import Copies
from mq.errors import NotFound, PeerUnreachable
from mq.front_store import FrontStore
from mq.load_checker import LoadChecker, PinnedFile
from mq.loads import Loads
from mq.maintenance import Maintenance
from mq.metrics import Metrics
from mq.parts import Parts
from mq.peers import PeerAnswer, Peers
from mq.settings import BrokerSettings
from mq.topic_runtime import TopicRuntime
from mq.transition_arm import TransitionArm
from tests.support.inline_executor import InlineExecutor

GRACE_SECONDS = 60.0
METRICS = Metrics()


class SharedList(InProcessCoordinator):
    """Who is alive, as everybody is told at once."""

    def __init__(self, alive: dict[str, BrokerInfo]) -> None:
        super().__init__()
        self._alive = alive

    def brokers(self) -> Sequence[BrokerInfo]:
        return tuple(self._alive[name] for name in sorted(self._alive))

    def leads(self) -> bool:
        return False


class NoPeers:
    """No broker reaches another one."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        raise PeerUnreachable(url)

    async def close(self) -> None:
        return


class InlineChecker:
    """Checks files of loads in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, files: Sequence[PinnedFile]) -> None:
        for file in files:
            fetched = await self._store.get(file.key)
            if fetched.info.etag != file.etag:
                raise LoadRefused(f"{file.key}: it has changed while it was checked")
            check_load_file(partial(_parts, fetched.data), file.claim, file.segment)


def _parts(data: bytes, ranges: Ranges) -> list[bytes]:
    return [data[start:stop] for start, stop in ranges]


class SimulatedBroker:
    """One life of a broker: `alive` has it from now on. `close` it at the end."""

    def __init__(self, broker: str, store: Store, clock: Clock, alive: dict[str, BrokerInfo]) -> None:
        self.id, self._alive = broker, alive
        self.draining = asyncio.Event()
        self.topics: dict[str, TopicRuntime] = {}
        front_store = FrontStore(1 << 24)
        self.parts = Parts(
            broker=broker,
            store=store,
            clock=clock,
            catalogue=Catalogue(store, clock),
            reader=SegmentReader(store, InlineExecutor(), cache_bytes=1 << 20),
            decoder=InlineExecutor(),
            upkeep=InlineExecutor(),
            front_store=front_store,
            metrics=METRICS,
            settings=BrokerSettings.model_validate({"grace": GRACE_SECONDS, "rollup_age": 10.0}),
            writing=WriterSettings(flush_bytes=200, grace_seconds=GRACE_SECONDS),
            turns=Turns(1),
            coordinator=SharedList(alive),
            peers=Peers(NoPeers()),
            copies=Copies(front_store),
        )
        self.arm = TransitionArm(self.parts, self, LoadTable(), on_unfinished=lambda topic: None)
        self.loads = Loads(self.parts, self, self.arm, cast(LoadChecker, InlineChecker(store)))
        self.maintenance = Maintenance(self.parts, self)
        alive[broker] = BrokerInfo(broker, f"http://{broker}", "", "1")

    def see(self, state: TopicState) -> None:
        """Take a newer state of a topic into account."""
        known = self.topics.get(state.topic)
        if known is None:
            self.topics[state.topic] = TopicRuntime(self.parts, state, on_lost=lambda topic: None)
        else:
            known.apply(state)

    async def topic(self, name: str) -> TopicRuntime:
        """The running topic; raises `NotFound`."""
        if name not in self.topics:
            await self.refresh(name)
        if name not in self.topics:
            raise NotFound("topic", f"there is no topic {name!r}")
        return self.topics[name]

    async def refresh(self, name: str) -> None:
        """Read topic.json again."""
        record = await self.parts.catalogue.read(name)
        if record is not None:
            self.see(record.state)

    async def roll(self, name: str, segments: Sequence[int]) -> None:
        """Seal these segments and open one successor each."""
        await self.arm.give_successors(name, segments, "roll")

    async def mend(self, name: str) -> None:
        """Finish what is under way, and give what nobody writes any more a successor."""
        runtime = await self.topic(name)

        def is_orphan(segment: Segment) -> bool:
            writer = runtime.writers.get(segment.id)
            stopped = writer is not None and writer.state is WriterState.STOPPED
            return segment.owner not in self._alive or (segment.owner == self.id and stopped)

        await self.arm.mend(name, is_orphan, "failover")

    async def close(self) -> None:
        """It ends; what it had not stored fails."""
        self._alive.pop(self.id, None)
        await asyncio.gather(*(runtime.close() for runtime in self.topics.values()), self.arm.close())
