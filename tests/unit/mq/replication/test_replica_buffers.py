"""Copies that a follower holds: in order, without gaps, within the front store's budget, and never after a refusal."""

import pytest

from filer.segment.next_file import ACCEPTED_OVERHEAD_BYTES, Accepted
from mq.base.errors import CopyGap, CopyRefused, FrontStoreFull
from mq.limits.front_store import FrontStore
from mq.replication.replica_buffers import ReplicaBuffers
from tests.support.segment.segment_owners import single

HELD_BYTES = 10 + ACCEPTED_OVERHEAD_BYTES
LIMIT_BYTES = 10 * HELD_BYTES


def entries(*bases: int, count: int = 1, size_bytes: int = 10) -> list[Accepted]:
    return [Accepted(single(b"%d" % base), base, count, size_bytes, 0) for base in bases]


class Follower:
    def __init__(self) -> None:
        self.front_store = FrontStore(LIMIT_BYTES)
        self.copies = ReplicaBuffers(self.front_store)

    def held(self) -> list[int]:
        """What a seal in the owner's stead would store."""
        return [entry.base for entry in self.copies.refuse("t", 0)]


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_holds_what_goes_on_where_the_last_one_ended(follower: Follower) -> None:
    assert follower.copies.take("t", 0, entries(0, 1), 0) == 2
    assert follower.copies.take("t", 0, entries(2), 0) == 3
    assert follower.front_store.pending_bytes == 3 * HELD_BYTES
    assert follower.held() == [0, 1, 2]


def test_repeating_changes_nothing(follower: Follower) -> None:
    for _ in range(3):
        assert follower.copies.take("t", 0, entries(0, 1), 0) == 2
    assert follower.copies.take("t", 0, entries(0), 0) == 2
    assert follower.front_store.pending_bytes == 2 * HELD_BYTES
    assert follower.held() == [0, 1]


def test_drops_what_is_stored_and_goes_on_behind_it(follower: Follower) -> None:
    follower.copies.take("t", 0, entries(0, 1, 2), 0)
    assert follower.copies.take("t", 0, (), 2) == 3
    assert follower.front_store.pending_bytes == HELD_BYTES
    assert follower.copies.take("t", 0, entries(7), 7) == 8, "all before it is stored: there is no gap"
    assert follower.front_store.pending_bytes == HELD_BYTES
    assert follower.copies.take("t", 0, entries(0, 1), 1) == 8, "late calls of before"
    assert follower.held() == [7]


def test_takes_no_gap(follower: Follower) -> None:
    follower.copies.take("t", 0, entries(0), 0)
    with pytest.raises(CopyGap):
        follower.copies.take("t", 0, entries(2), 1)
    assert follower.held() == []
    assert follower.front_store.pending_bytes == 0


def test_a_full_follower_keeps_what_it_took_and_goes_on_there(follower: Follower) -> None:
    assert follower.front_store.try_reserve(LIMIT_BYTES - 5 * HELD_BYTES // 2)
    with pytest.raises(FrontStoreFull):
        follower.copies.take("t", 0, entries(0, 1, 2), 0)
    assert follower.front_store.pending_bytes == LIMIT_BYTES - HELD_BYTES // 2
    follower.front_store.release(LIMIT_BYTES - 5 * HELD_BYTES // 2)
    assert follower.copies.take("t", 0, entries(0, 1, 2), 0) == 3
    assert follower.front_store.pending_bytes == 3 * HELD_BYTES
    assert follower.held() == [0, 1, 2]


def test_a_call_that_brings_more_than_there_is_room_for_makes_room_first(follower: Follower) -> None:
    follower.copies.take("t", 0, entries(*range(10)), 0)
    assert follower.copies.take("t", 0, entries(10, 11), 5) == 12
    assert follower.front_store.pending_bytes == 7 * HELD_BYTES


def test_refuses_for_ever_even_what_it_holds_already(follower: Follower) -> None:
    follower.copies.take("t", 0, entries(0), 0)
    assert [entry.base for entry in follower.copies.refuse("t", 0)] == [0]
    for again in (entries(0), entries(1), []):
        with pytest.raises(CopyRefused):
            follower.copies.take("t", 0, again, 1)
    assert follower.held() == [0]
    assert follower.copies.take("t", 1, entries(0), 0) == 1, "another segment"
    assert follower.copies.take("u", 0, entries(0), 0) == 1, "another topic"


def test_refuses_a_segment_of_which_it_has_heard_nothing_yet(follower: Follower) -> None:
    assert follower.held() == []
    with pytest.raises(CopyRefused):
        follower.copies.take("t", 0, entries(0), 0)


def test_forgetting_gives_all_room_back(follower: Follower) -> None:
    follower.copies.take("t", 0, entries(0, 1, 2), 0)
    follower.copies.take("t", 0, (), 1)
    follower.copies.refuse("t", 0)
    follower.copies.keep_only("t", {1})
    assert follower.front_store.pending_bytes == 0
    follower.copies.keep_only("t", set())
    follower.copies.keep_only("never heard of", set())


def test_what_is_held_is_known_and_goes_when_it_is_stored(follower: Follower) -> None:
    follower.copies.take("t", 0, entries(0, 1, 2), 0)
    follower.copies.take("t", 1, (), 5)
    assert follower.copies.held() == [("t", 0)]
    follower.copies.drop_stored("t", 0, 2)
    assert follower.copies.held() == [("t", 0)] and follower.front_store.pending_bytes == HELD_BYTES
    follower.copies.refuse("t", 0)
    follower.copies.drop_stored("t", 0, 3)
    assert follower.copies.held() == [] and follower.front_store.pending_bytes == 0
    with pytest.raises(CopyRefused):
        follower.copies.take("t", 0, entries(3), 3)
    follower.copies.drop_stored("never heard of", 0, 3)


def test_keeps_open_segments_and_other_topics(follower: Follower) -> None:
    for topic, segment in (("t", 0), ("t", 1), ("u", 0)):
        follower.copies.take(topic, segment, entries(0), 0)
    follower.copies.keep_only("t", {1})
    assert follower.front_store.pending_bytes == 2 * HELD_BYTES
    assert follower.copies.take("t", 1, entries(1), 0) == 2
    assert follower.copies.take("u", 0, entries(1), 0) == 2
    follower.copies.keep_only("t", set())
    follower.copies.keep_only("u", set())
    assert follower.front_store.pending_bytes == 0
