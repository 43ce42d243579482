"""Scenes in which one safeguard decides. Each is right with the product as it is, and wrong without that safeguard."""

import contextlib
from types import SimpleNamespace
from typing import Any, cast

from filer.clock import settle
from filer.errors import CorruptFile, ObjectExists, OutcomeUnknown
from filer.format.segment_file import footer_size_bytes
from filer.keys import FileName
from filer.segment.inheritance import read_inherited
from filer.segment.next_file import Accepted
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_log import SegmentRef
from filer.segment.sequence_window import WINDOW_SEQUENCES
from filer.segment.take_over import flush_and_seal
from filer.slots import SLOTS
from filer.stores.decorators.faults import FaultKind
from filer.topic.positions import advance, earliest
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from leader.membership.coordinator import BrokerInfo
from leader.transitions import new_topic
from mq.base.errors import CopyRefused, PeerRefused
from mq.limits.front_store import FrontStore
from mq.peers.peers import Peers
from mq.replication.replica_buffers import ReplicaBuffers
from mq.replication.replication_lease import ReplicationLease
from mq.topic.topic_registry import TopicRegistry
from mq.transitions.segment_sealer import SegmentSealer
from tests.cluster.checker.history import Found, Reader, Visit
from tests.support.broker.executors import FakeRegistry
from tests.support.broker.simulated_broker import SharedList
from tests.support.inline_executor import InlineExecutor
from tests.support.segment.recorded_segment import TOPIC, RecordedSegment
from tests.support.segment.sealed_chain import SealedChain
from tests.support.segment.segment_owners import GRACE_SECONDS
from tests.support.segment.segment_world import FakeFollowers
from tests.support.segment.upkeeps import run_until_idle, upkeep_of
from tests.support.store.object_faults import flipped


async def an_owner_dies_during_a_put() -> list[str]:
    """The put takes effect never; its publisher must not have been told otherwise."""
    world = RecordedSegment()
    writer = world.open_writer()
    world.faults.add("create", FaultKind.HANG)
    await world.publish(writer)
    await world.crash(writer)
    return await world.verdict()


async def two_owners_write_one_offset() -> list[str]:
    """One of them put its file first, which is the only one that counts."""
    world = RecordedSegment()
    writer, other = world.open_writer(), world.open_writer()
    await world.publish(other)
    await world.publish(writer)
    await world.close()
    return await world.verdict()


async def a_request_is_lost_on_its_way_to_the_store() -> list[str]:
    """Nobody knows what became of the put, and the owner dies before it finds out."""
    world = RecordedSegment()
    writer = world.open_writer()
    world.faults.add("create", FaultKind.FAIL_BEFORE)
    await world.publish(writer)
    await world.crash(writer)
    return await world.verdict()


async def an_answer_is_lost_on_its_way_from_the_store() -> list[str]:
    """The put took effect, and its publisher must not be told that it did not."""
    world = RecordedSegment()
    writer = world.open_writer()
    world.faults.add("create", FaultKind.LOSE_ANSWER)
    await world.publish(writer)
    await world.pass_seconds(30)
    await world.close()
    return await world.verdict()


async def a_name_comes_back() -> list[str]:
    """A put stands still until others have written, rolled up and deleted the file of its name."""
    world = RecordedSegment()
    writer = world.open_writer()
    await world.publish(writer)
    world.faults.add("create", FaultKind.HANG)
    await world.publish(writer)
    other = await world.open_next_writer()
    for _ in range(3):
        await world.publish(other)
    await world.roll_up_and_delete()
    world.store.release()
    await settle()
    await world.close()
    return await world.verdict()


async def a_put_returns_soon_after_a_roll_up() -> list[str]:
    """As above, within the grace period: what was superseded must still be there."""
    world = RecordedSegment()
    writer = world.open_writer()
    await world.publish(writer)
    world.faults.add("create", FaultKind.HANG)
    await world.publish(writer)
    other = await world.open_next_writer()
    for _ in range(12):
        await world.publish(other)
    await world.clock.advance(GRACE_SECONDS / 10)
    index = await world.recovered()
    executor = InlineExecutor()
    upkeep = upkeep_of(world.memory, world.clock, world.ref, index, executor, rollup_age_seconds=0)
    await run_until_idle(upkeep)
    world.store.release()
    await settle()
    await world.close()
    return await world.verdict()


async def a_request_is_repeated() -> list[str]:
    """It is answered with its first position."""
    world = RecordedSegment()
    writer = world.open_writer()
    await settle()
    request = await world.publish(writer, sequence=1)
    await world.send(writer, request)
    await world.close()
    return await world.verdict()


async def a_request_is_repeated_in_a_successor() -> list[str]:
    """Its segment was sealed meanwhile; the successor knows what its predecessor stored."""
    world, chain = RecordedSegment(), SealedChain()
    writer = world.open_writer()
    await settle()
    request = await world.publish(writer, sequence=1)
    chain.ends[0] = await writer.seal()
    world.ref = SegmentRef(TOPIC, 1)
    heir = chain.segment(1)
    successor = world.open_writer(inherit=lambda: read_inherited(world.memory, chain, TOPIC, heir))  # type: ignore[arg-type]
    await settle()
    await world.send(successor, request)
    await world.close()
    return await world.verdict(segments=(0, 1))


async def a_request_is_repeated_too_late() -> list[str]:
    """Its sequence is older than the window: nobody can tell, so it must be refused."""
    world = RecordedSegment()
    writer = world.open_writer()
    await settle()
    first = await world.publish(writer, sequence=1)
    for sequence in range(2, WINDOW_SEQUENCES + 2):
        await world.publish(writer, sequence=sequence)
    await world.send(writer, first)
    await world.close()
    return await world.verdict()


async def a_file_is_gone_while_a_segment_is_sealed() -> list[str]:
    """The seal goes behind the last file, never at the gap: put back, the file is as it was."""
    world = RecordedSegment()
    writer = world.open_writer()
    for _ in range(5):
        await world.publish(writer)
    await world.crash(writer)
    key = world.ref.key(FileName(2))
    good = (await world.memory.get(key)).data
    await world.memory.delete([key])
    world.damaged(key)
    assert (await world.seal_at_end()).sealed
    with contextlib.suppress(ObjectExists):
        await world.memory.create(key, good)
    return await world.verdict()


async def a_bit_of_a_value_flips() -> list[str]:
    """Readers are told of the file, or given what was written."""
    world = RecordedSegment()
    writer = world.open_writer()
    for _ in range(3):
        await world.publish(writer)
    await world.close()
    await _flip_a_bit_of_a_value(world)
    return await world.verdict()


async def a_bit_flips_before_a_roll_up() -> list[str]:
    """The good original must not be replaced by a copy of the bad one; put back, it is as it was."""
    world = RecordedSegment()
    writer = world.open_writer()
    for _ in range(12):
        await world.publish(writer)
    await world.close()
    key, good = await _flip_a_bit_of_a_value(world)
    executor = InlineExecutor()
    index = await world.recovered()
    upkeep = upkeep_of(world.memory, world.clock, world.ref, index, executor, rollup_age_seconds=0)
    with contextlib.suppress(CorruptFile):
        await run_until_idle(upkeep)
    await world.memory.delete([key])
    await world.memory.create(key, good)
    return await world.verdict()


async def _flip_a_bit_of_a_value(world: RecordedSegment) -> tuple[str, bytes]:
    """Turn `k 1` into another value where it is stored, and not in the footer. Returns the file, and what it was."""
    key = world.ref.key(FileName(1))
    good = (await world.memory.get(key)).data
    at = good.index(b"k 1")
    assert at < len(good) - footer_size_bytes(good)
    await world.memory.delete([key])
    await world.memory.create(key, flipped(good, 8 * (at + 2)))
    world.damaged(key)
    return key, good


class RealFollower(FakeFollowers):
    """A follower whose buffer is the product's; its answers come at once."""

    def __init__(self, buffers: ReplicaBuffers) -> None:
        super().__init__()
        self._buffers = buffers

    def send(self, accepted: Accepted) -> None:
        super().send(accepted)
        try:
            held = self._buffers.take(TOPIC, 0, [accepted], 0)
        except CopyRefused:
            self.refuse()
        else:
            self.hold(held)


def replicated_segment() -> tuple[RecordedSegment, ReplicaBuffers, RealFollower]:
    """A segment with one follower."""
    buffers = ReplicaBuffers(FrontStore(1 << 20))
    follower = RealFollower(buffers)
    return RecordedSegment(followers=follower), buffers, follower


async def a_zombie_publishes_after_a_take_over() -> list[str]:
    """Its follower has stored its copy and sealed: what comes later is nobody's."""
    world, buffers, _ = replicated_segment()
    writer = world.open_writer(flush_interval_seconds=10.0)
    world.faults.add("create", FaultKind.HANG)
    await world.publish(writer, replicated=True)
    copy = buffers.refuse(TOPIC, 0)
    await _flush_and_seal(world, copy)
    await world.publish(writer, replicated=True)
    await world.crash(writer)
    return await world.verdict()


async def a_follower_takes_over() -> list[str]:
    """The owner dies with what was acknowledged, and its follower stores it."""
    world, buffers, _ = replicated_segment()
    writer = world.open_writer(flush_interval_seconds=10.0)
    world.faults.add("create", FaultKind.HANG)
    for _ in range(3):
        await world.publish(writer, replicated=True)
    await world.crash(writer)
    await _flush_and_seal(world, buffers.refuse(TOPIC, 0))
    return await world.verdict()


class AllRefuse:
    """How the leader reaches other brokers: their addresses refuse it."""

    async def seal(self, url: str | None, *_: object, **__: object) -> None:
        raise PeerRefused(f"{url}")

    async def take_over(self, url: str | None, *_: object, **__: object) -> None:
        raise PeerRefused(f"{url}")


async def an_owner_and_its_follower_refuse_connections() -> list[str]:
    """A firewall refuses in their names, in the middle of a failover. They live, and their sessions go on."""
    world, buffers, _ = replicated_segment()
    writer = world.open_writer(flush_interval_seconds=10.0)
    world.faults.add("create", FaultKind.HANG)
    await world.publish(writer, replicated=True)
    with contextlib.suppress(OutcomeUnknown):
        await _seal_as_leader(world, "owner.1", "follower.1")
    await world.publish(writer, replicated=True)
    await world.crash(writer)
    await _flush_and_seal(world, buffers.refuse(TOPIC, 0))
    return await world.verdict()


async def _seal_as_leader(world: RecordedSegment, *brokers: str) -> None:
    """What a leader does that reaches none of the segment's brokers, which are all announced."""
    state = new_topic(TOPIC, TopicConfig(replicas=len(brokers)), 1, lambda segment: brokers, now_us=1)
    coordinator = SharedList({each: BrokerInfo(each, f"http://{each}", "", "1") for each in brokers})

    async def inherited(segment: Segment) -> ProducerWindows:
        return ProducerWindows()

    runtime = SimpleNamespace(
        writers={},
        topic=TOPIC,
        state=state,
        ref=lambda segment: world.ref,
        inherited=inherited,
        adopt_index=lambda segment, index: None,
    )
    sealer = SegmentSealer(
        broker="leader.1",
        store=world.memory,
        clock=world.clock,
        coordinator=coordinator,
        peers=cast(Peers, AllRefuse()),
        replicas=ReplicaBuffers(FrontStore(1 << 20)),
        topics=cast(TopicRegistry, FakeRegistry(lambda state: None, **{TOPIC: runtime})),
        last_url_of=lambda broker: f"http://{broker}",
        recorded_end=lambda topic, segment: 0,
        grace_seconds=GRACE_SECONDS,
    )
    await sealer.seal(TOPIC, state.segments[0], state)


class OutOfTouch:
    """A coordinator that was out of touch since the record was read."""

    touch_count = 1

    def in_touch(self) -> bool:
        return False


async def an_owner_out_of_touch_is_given_up() -> list[str]:
    """Both it and its follower are cut off: the segment is sealed at what the store has, without asking them."""
    world, _, follower = replicated_segment()
    lease = ReplicationLease(OutOfTouch(), settle, on_valid=lambda: None)  # type: ignore[arg-type]
    replication = follower.replication
    follower.replication = lambda: _with_lease(replication(), lease)  # type: ignore[method-assign]
    writer = world.open_writer(flush_interval_seconds=10.0)
    world.faults.add("create", FaultKind.HANG)
    await world.publish(writer, replicated=True)
    await world.open_next_writer()
    index = await world.recovered()
    assert not index.files
    await _flush_and_seal(world, ())
    await world.crash(writer)
    await lease.close()
    await world.close()
    return await world.verdict()


def _with_lease(replication: Any, lease: ReplicationLease) -> Any:
    return type(replication)(replication.replicas, lease.is_valid, replication.on_held, replication.on_unstored)


async def _flush_and_seal(world: RecordedSegment, copy: Any) -> None:
    sealed = await flush_and_seal(
        world.memory, world.clock, world.ref, copy, start_offset=0, writer="z.1", grace_seconds=GRACE_SECONDS
    )
    assert sealed.sealed


async def a_reader_comes_to_a_transition() -> list[str]:
    """It drains the predecessor, page by page, before it enters the successor."""
    world, chain = RecordedSegment(), SealedChain()
    writer = world.open_writer()
    for _ in range(3):
        await world.publish(writer)
    chain.ends[0] = await writer.seal()
    world.ref = SegmentRef(TOPIC, 1)
    successor = world.open_writer()
    for _ in range(3):
        await world.publish(successor)
    await world.close()
    await world.read((0, 1))
    log = {(found.segment, found.offset): found for found in world.history.readers[0].found}
    world.history.readers.append(_read_by_pages(log, world.now_seconds))
    world.history.predecessors[TOPIC] = {1: (0,)}
    return await world.verdict((0, 1))


def _read_by_pages(log: dict[tuple[int, int], Found], now_seconds: float) -> Reader:
    """One message of each segment that may be read, and again."""
    state = _rolled(ends={0: 3})
    positions = advance(state, earliest(state))
    visit = Visit("broker", 0, now_seconds)
    while ready := [segment for segment, offset in sorted(positions.items(), reverse=True) if (segment, offset) in log]:
        for segment in ready:
            visit.found.append(log[segment, positions[segment]])
            positions[segment] += 1
        positions = advance(state, positions)
    return Reader("pages", TOPIC, "browse", joined_seconds=0.0, visits=[visit], finished=True)


def _rolled(ends: dict[int, int]) -> TopicState:
    """Segment 0, sealed, and its successor."""
    segments = (
        Segment(
            id=0, start_slot=0, stop_slot=SLOTS, brokers=("p",), opened_us=1, reason="create", successors=(1,),
            state="sealed", end_offset=ends[0], seal_offset=ends[0], sealed_us=2,
        ),
        Segment(
            id=1, start_slot=0, stop_slot=SLOTS, brokers=("p",), opened_us=2, reason="roll", predecessors=(0,)
        ),
    )  # fmt: skip
    return TopicState(topic=TOPIC, created_us=1, version=1, next_segment=2, config=TopicConfig(), segments=segments)
