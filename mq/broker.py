"""The broker: one process that accepts, stores and serves messages. Everything it works with is passed in."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from filer.catalogue import Catalogue
from filer.clock import Clock
from filer.cluster_record import ClusterRecord, open_cluster
from filer.errors import BraidError, CorruptFile, InvalidConfig
from filer.fence_check import check_fencing
from filer.keys import check_name
from filer.segment_reader import SegmentReader
from filer.segment_writer import WriterSettings, WriterState
from filer.store import Store, StreamingStore
from filer.topic_config import FIXED_FIELDS, TopicConfig, parse_config
from filer.topic_state import Segment, TopicState
from filer.turns import Turns
from filer.uploads import Uploads
from leader.coordinator import BrokerInfo, Coordinator
from leader.leading import Leading
from leader.load_table import LoadTable
from leader.placement import owned
from leader.reshaping import Reshaping
from leader.transitions import new_topic, recreated
from mq.coalesced import Coalesced
from mq.copies import Copies
from mq.early_flush import EarlyFlush
from mq.errors import Conflict, Draining, NoOtherBroker, NotFound
from mq.front_store import FrontStore
from mq.http_peers import POLLS_PER_BROKER, HttpPeers
from mq.load_checker import LoadChecker
from mq.load_reporter import LoadReporter
from mq.loads import Loads
from mq.maintenance import Maintenance
from mq.metrics import Metrics
from mq.own_topics import OwnTopics
from mq.parts import Parts
from mq.peers import Peers, PeerTransport
from mq.reads import Reads
from mq.settings import BrokerSettings
from mq.shape_requests import Merge, Split, carry_out
from mq.shown_loads import ShownLoads
from mq.topic_reader import TopicReader
from mq.topic_runtime import TopicRuntime
from mq.transition_arm import TransitionArm
from mq.version import VERSION

S3_FLUSH_INTERVAL_SECONDS = 0.1
S3_PUTS_AT_ONCE = 64
MEND_FIRST_SECONDS = 0.05
MEND_LONGEST_SECONDS = 10.0
HAND_OVER_SHARE = 0.5
HAND_OVER_STEP_SECONDS = 0.02
# Counting what is left takes some 100 ms of 100,000 segments, on the event loop that also seals them.
HAND_OVER_REST = 4.0
# Of a newer record the news brings it, as a rule. It is read all the same, in case that was lost, but not at the very
# moment at which publishers wait for puts.
HEAR_SECONDS = 0.3
# Who asks how the cluster stands may ask because the store is away. Clients wait 5 s, and may have to for two counts.
COUNT_SECONDS = 2.0
# Clients ask for the cluster every few seconds, each of them: the store is listed for all of those together, and their
# segments counted, which of 100,000 takes some 70 ms of the event loop.
BETWEEN_COUNTS_SECONDS = 0.5

_AT_WORK = (WriterState.OPEN, WriterState.SEALING)

_log = logging.getLogger(__name__)


class Broker:
    """A broker and its topics. `start` before use, `drain` then `close` at the end.

    `payloads` takes uploads in chunk by chunk where the store has no presigned URLs.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        coordinator: Coordinator,
        settings: BrokerSettings,
        *,
        payloads: StreamingStore | None = None,
        peers: PeerTransport | None = None,
    ) -> None:
        self.settings, self.store, self.clock, self.coordinator = settings, store, clock, coordinator
        self.payloads = payloads
        self.peers = Peers(peers or HttpPeers(), peers or HttpPeers(POLLS_PER_BROKER))
        self.id = f"{settings.broker}.{clock.ulid()}"
        self.metrics = Metrics()
        self.front_store = FrontStore(settings.front_store_bytes)
        self.draining = asyncio.Event()
        self.reads = Reads()
        self.ready = False
        self.topics: dict[str, TopicRuntime] = {}
        self._decode_pool = ThreadPoolExecutor(2, thread_name_prefix="braidmq-decode")
        self._read_pool = ThreadPoolExecutor(2, thread_name_prefix="braidmq-read")
        self._upkeep_pool = ThreadPoolExecutor(1, thread_name_prefix="braidmq-upkeep")
        self.catalogue = Catalogue(store, clock)
        reader = SegmentReader(store, self._read_pool, cache_bytes=settings.file_cache_bytes)
        self.parts = Parts(
            self.id, store, clock, self.catalogue, reader, self._decode_pool, self._upkeep_pool, self.front_store,
            self.metrics, settings, _writing(settings), Turns(_puts_at_once(settings)), coordinator, self.peers,
            Copies(self.front_store),
        )  # fmt: skip
        table = LoadTable()
        self.arm = TransitionArm(self.parts, self, table, on_unfinished=self._mend_later)
        self.leading = Leading(
            coordinator, self.catalogue, clock, self.arm, table, on_settled=lambda topic: self.reshaping.look(topic)
        )
        self.reshaping = Reshaping(
            coordinator,
            clock,
            self.leading if self.parts.clustered else OwnTopics(self),
            self.arm,
            table,
            interval_seconds=settings.report_interval,
            segments_per_broker=settings.segments_per_broker,
        )
        self.load_reporter = LoadReporter(self.parts, self, self.reshaping)
        self.shown_loads = ShownLoads(self.parts, self.reshaping)
        self.loads = Loads(self.parts, self, self.arm, LoadChecker(store))
        self.early_flush = EarlyFlush(self.parts, self.topics, self.arm.take_over)
        self.maintenance = Maintenance(self.parts, self)
        self._counting = Coalesced(
            self._count_segments, clock, name="count segments", rest_seconds=BETWEEN_COUNTS_SECONDS
        )
        self._owned: Counter[str] = Counter()
        self._info: BrokerInfo | None = None
        self._ending = False
        self._heard: set[str] = set()
        self._refreshing: set[asyncio.Task[None]] = set()
        self._mending: dict[str, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []
        self.cluster: ClusterRecord | None = None

    # -- life ----------------------------------------------------------------------------------------------

    async def start(self, url: str) -> None:
        """Check the store, join the cluster, take over what an earlier life of this broker left open.

        Raises `StoreCannotFence` where two writers could both succeed, `CorruptFile` for a store of another cluster,
        `InvalidConfig` for another store than that of the cluster.
        """
        await check_fencing(self.store, self.clock)
        self.cluster = await open_cluster(self.store, self.clock, self.settings.cluster)
        self.uploads = Uploads(self.store, self.clock, self.cluster.secret)
        self.peers.open(self.cluster.secret)
        self._info = BrokerInfo(self.id, url, self.settings.zone, VERSION, store=self.cluster.id)
        await self.coordinator.join(self._info)
        self._check_store(self.cluster.id)
        if self.parts.clustered:
            self.parts.note_addresses()
            self.coordinator.on_news(self.parts.note_addresses)
            self.coordinator.on_news(self.leading.look)
            self.coordinator.on_news(self.early_flush.look)
            self.coordinator.on_topic(self._hear_of)
            self._loops.append(asyncio.create_task(self.leading.run(), name="leading"))
            self._loops.append(asyncio.create_task(self.early_flush.run(), name="early flush"))
        else:
            await self._take_up_all()
        for run, name in (
            (self.maintenance, "maintenance"),
            (self.load_reporter, "reports"),
            (self.reshaping, "scaling"),
        ):
            self._loops.append(asyncio.create_task(run.run(), name=name))
        self.ready = True

    def _check_store(self, store: str) -> None:
        """Raises `InvalidConfig` where the cluster has another one: we would be given segments the rest cannot find.

        Its store is that of the broker that has been there longest. So of several that start at once with different
        stores the first goes on, and those that have the same; one that is wrong cannot keep the others from starting.
        """
        eldest = next((broker for broker in self.coordinator.by_age() if broker.store), None)
        if eldest is not None and eldest.store != store:
            raise InvalidConfig(
                f"{eldest.id} of cluster {self.settings.cluster!r} at this ZooKeeper has another store than "
                f"{self.settings.store_url}: give all its brokers the same --store, or this one another --cluster"
            )

    async def _take_up_all(self) -> None:
        """A broker that is alone does at its start what a leader does all the time."""
        for name in await self.catalogue.names():
            try:
                await self.arm.mend(name, lambda segment: segment.owner != self.id, "failover")
            except CorruptFile as error:
                # One damaged topic must not keep the others from being served: it stays as it is, publishes to it
                # are refused, and what can be read of it is.
                _log.error("topic %r cannot be taken up: %s", name, error)

    def _hear_of(self, name: str) -> None:
        """Somebody has changed that topic's record."""
        self.leading.look(name)
        if name in self.topics and name not in self._heard and not self.draining.is_set():
            self._heard.add(name)
            task = asyncio.create_task(self._refresh_later(name), name=f"read the record of {name} again")
            self._refreshing.add(task)
            task.add_done_callback(self._refreshing.discard)

    async def _refresh_later(self, name: str) -> None:
        await self.clock.sleep(HEAR_SECONDS)
        # What is heard from here on may be newer than what is read.
        self._heard.discard(name)
        try:
            await self.refresh(name)
        except BraidError as error:
            _log.warning("topic %r could not be read again: %s: %s", name, type(error).__name__, error)

    def _mend_later(self, name: str) -> None:
        """Have a topic looked after that a writer's end or a failed transition has left without an owner."""
        if name not in self._mending and not self.draining.is_set():
            self._mending[name] = asyncio.create_task(self._mend(name), name=f"mend {name}")

    async def _mend(self, name: str) -> None:
        """Go on in successors of segments that are ours and whose writer has stopped, as soon as the store lets us.

        Whoever took a segment over has said so in topic.json, or says so by a transition that is under way; else
        nobody else will take it up while this broker lives.
        """

        def is_orphan(segment: Segment) -> bool:
            writer = self.topics[name].writers.get(segment.id)
            return segment.owner == self.id and writer is not None and writer.state is WriterState.STOPPED

        pause = MEND_FIRST_SECONDS
        try:
            while not self.draining.is_set():
                await self.clock.sleep(pause)
                try:
                    await self.arm.mend(name, is_orphan, "failover")
                    # Where it was never known here there may be no such topic.
                    runtime = self.topics.get(name)
                    if runtime is None or not any(map(is_orphan, runtime.state.open_segments)):
                        return
                except BraidError as error:
                    _log.warning("topic %r is not whole yet: %s: %s", name, type(error).__name__, error)
                pause = min(pause * 2, MEND_LONGEST_SECONDS)
        finally:
            del self._mending[name]

    async def drain(self) -> None:
        """Have others take over, take nothing new, store what was accepted: a clean end leaves nothing to fail over.

        What nobody takes over is sealed by the next start (or the next broker), which does it anyhow; here every
        accepted message is stored and answered. Safe to be cut short: unanswered messages were never promised.
        """
        self._ending = True
        if self.parts.clustered:
            await self._hand_over_all()
        self.draining.set()
        self.ready = False
        self.reads.end()
        # From here on it carries out no transition, and requests that are under way here may wait for one. So may all
        # others': nobody else leads while this one does. What it leaves half done is in topic.json for the next leader.
        self.coordinator.resign()
        # A read may make another topic known meanwhile; there is nothing to store in that.
        await asyncio.gather(*(runtime.flush() for runtime in list(self.topics.values())))
        # What nobody took over from us may be held by nobody else: its owner may be gone, and all others too.
        await self.early_flush.store_all()

    async def hand_over_to_others(self) -> int:
        """As `hand_over`, where somebody can take over; raises `NoOtherBroker` and changes nothing where nobody can."""
        if not self._others():
            raise NoOtherBroker(
                f"no other broker could take over what {self.id} owns: {self._why_alone()}; SIGTERM stops it all the "
                "same, and its segments are taken up at the next start"
            )
        return await self.hand_over()

    async def take_part_again(self) -> int:
        """Take back a hand-over: the leader may give this broker segments again; how many it owns.

        What others have taken over stays theirs until the load is spread. Changes nothing where none was asked for.
        Raises `Draining` while the process ends.
        """
        if self._ending:
            raise Draining(f"{self.id} is shutting down: start it again instead")
        if self._info is not None and self._info.draining:
            self._info = replace(self._info, draining=False)
            await self.coordinator.join(self._info)
        return self.segments_owned

    def _others(self) -> list[BrokerInfo]:
        """Those who could take over what this broker owns."""
        return [b for b in self.coordinator.brokers() if b.id != self.id and not b.draining]

    def _why_alone(self) -> str:
        if not self.parts.clustered:
            return "it runs without ZooKeeper, as a cluster of its own"
        return f"start another broker in cluster {self.settings.cluster!r} first"

    async def hand_over(self) -> int:
        """Have the leader give this broker's segments to others, and nothing new to it; how many it still has.

        Those that it follows count: it may be the only other one that holds what their owners have not stored. Those
        that it owns count until their successors are open, however long they have been sealed or lost: publishers wait
        for that, and where this broker leads nobody else would see to it.
        """
        if self._info is not None and not self._info.draining and self.parts.clustered:
            self._info = replace(self._info, draining=True)
            await self.coordinator.join(self._info)
        return sum(self._segments_with_us(runtime) for runtime in self.topics.values())

    @property
    def segments_owned(self) -> int:
        """Open segments that this broker writes."""
        return sum(w.state in _AT_WORK for runtime in self.topics.values() for w in runtime.writers.values())

    def _segments_with_us(self, runtime: TopicRuntime) -> int:
        """How many segments of a topic have this broker in its record, soon or still, or are written by it yet."""
        under_way = runtime.state.transition
        segments = (*runtime.state.open_segments, *(under_way.open if under_way is not None else ()))
        named = {segment.id for segment in segments if self.id in segment.brokers}
        return len(named | {i for i, writer in runtime.writers.items() if writer.state in _AT_WORK})

    async def _hand_over_all(self) -> None:
        """Wait until others have everything, for part of the time there is to drain; what remains is failed over.

        Who is out of touch may be in touch again in a moment: it waits a session for that, after which it is failed
        over anyhow.
        """
        counted_seconds = touched_seconds = self.clock.monotonic_seconds()
        deadline = counted_seconds + self.settings.drain_timeout * HAND_OVER_SHARE
        while await self.hand_over() and counted_seconds < deadline:
            if self.coordinator.in_touch():
                touched_seconds = counted_seconds
            is_lost = counted_seconds - touched_seconds > self.coordinator.session_timeout_seconds
            if is_lost or not self._others():
                return
            took_seconds = self.clock.monotonic_seconds() - counted_seconds
            await self.clock.sleep(max(HAND_OVER_STEP_SECONDS, took_seconds * HAND_OVER_REST))
            counted_seconds = self.clock.monotonic_seconds()

    async def close(self) -> None:
        """Stop everything and let go of threads and connections."""
        self.draining.set()
        tasks = [*self._mending.values(), *self._refreshing, *self._loops]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._counting.close()
        await asyncio.gather(*(runtime.close() for runtime in self.topics.values()), self.arm.close())
        await self.coordinator.leave()
        await self.peers.close()
        self._decode_pool.shutdown(wait=True)
        self._read_pool.shutdown(wait=True)
        self._upkeep_pool.shutdown(wait=True)
        await self.store.close()

    # -- topics --------------------------------------------------------------------------------------------

    async def topic(self, name: str) -> TopicRuntime:
        """The running topic; raises `NotFound`, or `InvalidName` for what cannot be one."""
        runtime = self.topics.get(name)
        if runtime is None or runtime.state.deleted:
            # Somebody else may have created it, or created it again.
            await self.refresh(check_name(name))
            runtime = self.topics.get(name)
        if runtime is None or runtime.state.deleted:
            raise NotFound("topic", f"there is no topic {name!r}: create it with PUT /v1/topics/{name}")
        return runtime

    async def reader(self, name: str, *, streaming: bool = False) -> TopicReader:
        """Reads of that topic; raises as `topic`."""
        runtime = await self.topic(name)
        return TopicReader(runtime, self.parts.reader, streaming=streaming)

    def see(self, state: TopicState) -> None:
        """Take a newer state of a topic into account."""
        runtime = self.topics.get(state.topic)
        if runtime is None:
            self.topics[state.topic] = TopicRuntime(self.parts, state, on_lost=self._mend_later)
            self.coordinator.follow(state.topic)
        else:
            runtime.apply(state)
        self._look_at(state)

    def _look_at(self, state: TopicState) -> None:
        """Have whoever leads here look at what is new: of a topic not followed before nothing has been announced."""
        if not self.parts.clustered:
            self.reshaping.look(state.topic)
        elif (known := self.leading.states.get(state.topic)) is None or known.version < state.version:
            self.leading.look(state.topic)

    async def refresh(self, name: str) -> None:
        """Read topic.json again: another process may have changed it."""
        if (runtime := self.topics.get(name)) is not None:
            await runtime.refresh()
        elif (record := await self.catalogue.read(name)) is not None:
            self.see(record.state)

    async def put_topic(self, name: str, body: Mapping[str, Any]) -> tuple[TopicRuntime, bool]:
        """Create a topic or change its configuration; whether it was created.

        Raises `InvalidName`, `InvalidConfig`, and `Conflict` for a change of what cannot change.
        """
        check_name(name)
        settings = dict(body)
        segments = settings.pop("segments", None)
        async with self.arm.lock(name):
            record = await self.catalogue.read(name)
            if record is not None and not record.state.deleted:
                if segments is not None and segments != len(record.state.open_segments):
                    raise Conflict(
                        "topic-conflict",
                        f"topic {name!r} exists with {len(record.state.open_segments)} open segments; "
                        "'segments' counts only at creation",
                    )
                return await self._reconfigure(record.state, settings), False
            config = parse_config(settings)
            self._check_servable(config)
            count = _segments_at_creation(segments, config)
            return await self._create(name, record.state if record else None, config, count), True

    async def _create(self, name: str, tombstone: TopicState | None, config: TopicConfig, count: int) -> TopicRuntime:
        now_us = self.clock.now_us()
        place = self.arm.place(name, config, count)
        fresh = new_topic(name, config, count, place, now_us=now_us)
        if tombstone is None:
            if not await self.catalogue.create(fresh):
                await self.refresh(name)
                return await self.topic(name)
            self.see(fresh)
        else:
            state = await self.catalogue.change(
                name, lambda s: recreated(s, config, count, place, now_us=now_us) if s.deleted else None
            )
            self.see(state or fresh)
        return await self.topic(name)

    async def _reconfigure(self, state: TopicState, settings: Mapping[str, Any]) -> TopicRuntime:
        wanted = parse_config(settings, base=state.config)
        self._check_servable(wanted)
        for field in FIXED_FIELDS:
            if getattr(wanted, field) != getattr(state.config, field):
                raise Conflict(
                    "topic-conflict",
                    f"{field} of topic {state.topic!r} is {getattr(state.config, field)!r} and cannot change: "
                    "files of that type are stored; create another topic",
                )

        def change(newest: TopicState) -> TopicState | None:
            config = parse_config(settings, base=newest.config)
            return None if config == newest.config else newest.model_copy(update={"config": config})

        changed = await self.catalogue.change(state.topic, change) or state
        self.see(changed)
        if changed.version != state.version:
            # The leader acts on min_segments at once, and owners go by the new windows.
            self.arm.tell(changed)
        return await self.topic(state.topic)

    def _check_servable(self, config: TopicConfig) -> None:
        alive = len(self.coordinator.brokers())
        if config.replicas > alive:
            raise InvalidConfig(
                f"replicas is {config.replicas}, but there {_are(alive)}: at most {alive} can hold a copy"
            )

    async def delete_topic(self, name: str) -> None:
        """Seal everything, leave a tombstone; the files go after the grace period. Raises `NotFound`."""
        await self.topic(name)
        await self.arm.delete(name)

    async def roll(self, name: str, segments: Sequence[int]) -> None:
        """Seal these segments and open one successor each, here."""
        await self.arm.give_successors(name, segments, "roll")

    async def reshape(self, name: str, wanted: Split | Merge) -> tuple[TopicState, list[Segment]]:
        """Split or merge segments as somebody asks; raises `NotFound`, and as `carry_out`."""
        runtime = await self.topic(name)
        if runtime.state.segment(wanted.segment) is None:
            # Whoever asks may have heard of it before us.
            with contextlib.suppress(BraidError):
                await runtime.refresh()
        return await carry_out(self.arm, self.clock, runtime.state, wanted)

    async def load(self) -> Counter[str]:
        """How many open segments each broker owns, in those topics known here if the store is away."""
        await self._counting()
        return self._owned

    async def _count_segments(self) -> None:
        with contextlib.suppress(BraidError, TimeoutError):
            async with asyncio.timeout(COUNT_SECONDS):
                await self._learn_topics()
        self._owned = owned(runtime.state for runtime in self.topics.values())

    async def _learn_topics(self) -> None:
        """Know every topic that there is."""
        for name in await self.catalogue.names():
            if name not in self.topics:
                with contextlib.suppress(NotFound, CorruptFile):
                    await self.topic(name)


def _writing(settings: BrokerSettings) -> WriterSettings:
    """How writers batch: puts cost nothing on a directory, and money on S3."""
    interval = settings.flush_interval
    if interval is None:
        interval = S3_FLUSH_INTERVAL_SECONDS if _on_s3(settings) else 0.0
    return WriterSettings(
        flush_bytes=settings.flush_bytes, flush_interval_seconds=interval, grace_seconds=settings.grace
    )


def _puts_at_once(settings: BrokerSettings) -> int:
    """How many segments' files are under way at once, as a rule: puts to S3 wait, those to a directory compute."""
    return S3_PUTS_AT_ONCE if _on_s3(settings) else 1


def _on_s3(settings: BrokerSettings) -> bool:
    return settings.store_url.startswith("s3:")


def _segments_at_creation(segments: Any, config: TopicConfig) -> int:
    count = config.min_segments if segments is None else segments
    if not isinstance(count, int) or isinstance(count, bool):
        raise InvalidConfig(f"segments: a whole number is wanted, not {count!r}")
    if not config.min_segments <= count <= config.max_segments:
        raise InvalidConfig(
            f"segments is {count}: it lies between min_segments ({config.min_segments}) "
            f"and max_segments ({config.max_segments})"
        )
    return count


def _are(brokers: int) -> str:
    return "is 1 broker" if brokers == 1 else f"are {brokers} brokers"
