"""The checker is checked: without any one of these safeguards it finds something wrong, and with all of them nothing.

A safeguard is taken out by a patch here, never by a switch in the product.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from filer.clock import Clock
from filer.errors import ObjectExists, OutcomeUnknown, SegmentMoved
from filer.format import segment_file
from filer.format.segment_file import read_end
from filer.segment import segment_log, take_over
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_log import put_until_known
from filer.segment.sequence_window import Found, SequenceWindow
from filer.segment.writer import segment_writer
from filer.segment.writer.ownership_proof import OwnershipProof
from filer.stores.store import Store
from filer.topic import positions
from filer.upkeep import rollup
from filer.upkeep.segment_upkeep import SegmentUpkeep
from mq.replication.replica_buffers import ReplicaBuffers
from mq.replication.replication_lease import ReplicationLease
from mq.transitions.segment_sealer import SegmentSealer
from tests.simulation.safeguards import scenes

Put = Callable[..., Awaitable[bool]]


def _put(replacement: Put) -> AbstractContextManager[object]:
    return mock.patch.object(segment_writer, "put_until_known", replacement)


_waiting: set["asyncio.Task[bool]"] = set()


async def _returns_at_once(store: Store, clock: Clock, key: str, data: Any, writer: str, **_: Any) -> bool:
    _encode(data)
    _waiting.add(asyncio.create_task(put_until_known(store, clock, key, data, writer)))
    return True


def _encode(data: Any) -> None:
    """The writer needs the facts of its file, which it has once the store has asked for the bytes."""
    if callable(data):
        data()


async def _takes_412_for_success(store: Store, clock: Clock, key: str, data: Any, writer: str, **_: Any) -> bool:
    try:
        await store.create(key, data)
    except ObjectExists:
        _encode(data)
    return True


async def _takes_unknown_for_success(store: Store, clock: Clock, key: str, data: Any, writer: str, **_: Any) -> bool:
    try:
        await store.create(key, data)
    except OutcomeUnknown:
        _encode(data)
    return True


async def _takes_unknown_for_failure(store: Store, clock: Clock, key: str, data: Any, writer: str, **_: Any) -> bool:
    try:
        await store.create(key, data)
    except OutcomeUnknown as error:
        raise SegmentMoved from error
    return True


async def _is_never_asked(*_: object) -> bool:
    return False


async def _inherits_nothing(*_: object) -> ProducerWindows:
    return ProducerWindows()


def _knows_no_request(self: ProducerWindows, request: object) -> list[Found]:
    return [Found(self.start, self.stop, None, False)]


@dataclass(frozen=True)
class Safeguard:
    """What is taken out, the scene in which it decides, and what the checker says then."""

    name: str
    without: Callable[[], AbstractContextManager[object]]
    scene: Callable[[], Awaitable[list[str]]]
    word: str


SAFEGUARDS = [
    Safeguard(
        "acknowledge when the put has returned",
        lambda: _put(_returns_at_once),
        scenes.an_owner_dies_during_a_put,
        "lost",
    ),
    Safeguard(
        "412 is somebody else's file", lambda: _put(_takes_412_for_success), scenes.two_owners_write_one_offset, "lost"
    ),
    Safeguard(
        "an unknown outcome is no success",
        lambda: _put(_takes_unknown_for_success),
        scenes.a_request_is_lost_on_its_way_to_the_store,
        "lost",
    ),
    Safeguard(
        "an unknown outcome is no failure",
        lambda: _put(_takes_unknown_for_failure),
        scenes.an_answer_is_lost_on_its_way_from_the_store,
        "not refused",
    ),
    Safeguard(
        "an old proof of ownership is renewed",
        lambda: mock.patch.object(OwnershipProof, "has_moved_on", _is_never_asked),
        scenes.a_name_comes_back,
        "lost",
    ),
    Safeguard(
        "superseded files stay for the grace period",
        lambda: mock.patch.object(SegmentUpkeep, "_due", lambda self, now_us: list(self.index.superseded)),
        scenes.a_put_returns_soon_after_a_roll_up,
        "lost",
    ),
    Safeguard(
        "producer windows",
        lambda: mock.patch.object(ProducerWindows, "look_up", _knows_no_request),
        scenes.a_request_is_repeated,
        "doubled",
    ),
    Safeguard(
        "successors inherit producer windows",
        lambda: mock.patch.object(scenes, "read_inherited", _inherits_nothing),
        scenes.a_request_is_repeated_in_a_successor,
        "doubled",
    ),
    Safeguard(
        "a sequence below the window is refused",
        lambda: mock.patch.object(SequenceWindow, "is_past", lambda self, sequence: False),
        scenes.a_request_is_repeated_too_late,
        "doubled",
    ),
    Safeguard(
        "a follower that seals refuses the owner",
        lambda: mock.patch.object(ReplicaBuffers, "refuse", lambda self, *name: tuple(self._buffer(*name).entries)),
        scenes.a_zombie_publishes_after_a_take_over,
        "lost",
    ),
    Safeguard(
        "a follower stores its copy before it seals",
        lambda: mock.patch.object(take_over, "beyond", lambda copy, end: []),
        scenes.a_follower_takes_over,
        "lost",
    ),
    Safeguard(
        "a refused connection does not show that a broker is gone",
        lambda: mock.patch.object(SegmentSealer, "_is_gone", lambda *_: True),
        scenes.an_owner_and_its_follower_refuse_connections,
        "lost",
    ),
    Safeguard(
        "the replication lease",
        lambda: mock.patch.object(ReplicationLease, "is_valid", lambda self: True),
        scenes.an_owner_out_of_touch_is_given_up,
        "lost",
    ),
    Safeguard(
        "a gap is never an end",
        lambda: mock.patch.object(segment_log, "_extend_over_gaps", segment_log._extend),
        scenes.a_file_is_gone_while_a_segment_is_sealed,
        "lost",
    ),
    Safeguard(
        "bytes are checked before they are served",
        lambda: mock.patch.object(segment_file, "check_body", lambda data, digests: None),
        scenes.a_bit_of_a_value_flips,
        "divergent",
    ),
    Safeguard(
        "bytes are checked before they are rolled up",
        lambda: mock.patch.object(rollup, "read_whole", lambda data, place=None: read_end(data, len(data))),
        scenes.a_bit_flips_before_a_roll_up,
        "divergent",
    ),
    Safeguard(
        "a successor is entered when its predecessors are drained",
        lambda: mock.patch.object(positions, "_drained", lambda segment, read: segment.state == "sealed"),
        scenes.a_reader_comes_to_a_transition,
        "entered early",
    ),
]


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda safeguard: safeguard.name)
async def test_with_it_nothing_is_wrong(safeguard: Safeguard) -> None:
    assert await safeguard.scene() == []


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda safeguard: safeguard.name)
async def test_without_it_the_checker_says_so(safeguard: Safeguard) -> None:
    try:
        with safeguard.without():
            complaints = await safeguard.scene()
    finally:
        for task in _waiting:
            task.cancel()
        await asyncio.gather(*_waiting, return_exceptions=True)
        _waiting.clear()
    assert any(f": {safeguard.word}: " in complaint for complaint in complaints), complaints


def test_there_are_enough_of_them() -> None:
    assert len({safeguard.name for safeguard in SAFEGUARDS}) >= 12
