"""Who may connect, who gives way, who is late."""

from dataclasses import replace

import pytest

from mq.process.connections.connections import Connections, Decision
from mq.process.connections.limits import HALF_HEADS_BYTES, LINGER_SECONDS, UNREAD_BYTES, ConnectionLimits
from mq.process.connections.refusals import ADDRESS, ANSWER_LATE, BODY_LATE, CROWDED, GAVE_WAY, HEAD_LATE, IDLE, NO_ROOM

LIMITS = ConnectionLimits(
    total=3,
    surplus=1,
    per_address=2,
    head_bytes=1000,
    idle_seconds=120.0,
    head_seconds=10.0,
    stall_seconds=20.0,
    slowest_bytes_per_second=10,
)
HERE = "127.0.0.1"


class Fake:
    """A connection of which the test sets what it tells."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.received_bytes = self.unsent_bytes = 0
        self.may_send = True

    def __repr__(self) -> str:
        return self.name


class World:
    """Connections whose time the test sets."""

    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.seconds = 0.0
        self.all: Connections[Fake] = Connections(limits, lambda: self.seconds)

    def connect(self, *names: str, address: str = HERE) -> list[Fake]:
        """Connections that all are admitted, a second after each other."""
        made = [Fake(name) for name in names]
        for each in made:
            self.seconds += 1
            assert self.all.admit(each, address) == []
        return made


@pytest.fixture
def world() -> World:
    return World()


def test_past_the_limit_the_longest_idle_one_gives_way(world: World) -> None:
    a, b, c = world.connect("a", "b", "c")
    assert world.all.head_complete(a, is_broker=False) is None
    world.seconds += 1
    world.all.idle(a)
    assert world.all.admit(Fake("d"), HERE) == [Decision(b, GAVE_WAY)]
    world.all.gone(b)
    assert len(world.all) == 3
    assert world.all.admit(Fake("e"), HERE) == [Decision(c, GAVE_WAY)]


def test_half_a_head_gives_way_like_silence(world: World) -> None:
    a, _, _ = world.connect("a", "b", "c")
    assert world.all.head_part(a, 10) == []  # it begins now, after the others fell silent
    assert world.all.admit(Fake("d"), HERE)[0].connection.name == "b"


def test_where_all_have_requests_the_surplus_is_for_brokers(world: World) -> None:
    for each in world.connect("a", "b", "c"):
        world.all.head_complete(each, is_broker=False)
    extra = Fake("extra")
    assert world.all.admit(extra, HERE) == []
    assert world.all.head_complete(extra, is_broker=False) is NO_ROOM
    world.all.gone(extra)
    peer = Fake("peer")
    assert world.all.admit(peer, HERE) == []
    assert world.all.head_complete(peer, is_broker=True) is None
    last = Fake("last")
    assert world.all.admit(last, HERE) == [Decision(last, NO_ROOM)]


def test_one_of_the_surplus_is_an_ordinary_one_as_soon_as_there_is_room(world: World) -> None:
    a, b, c = world.connect("a", "b", "c")
    for each in (a, b, c):
        world.all.head_complete(each, is_broker=False)
    extra = Fake("extra")
    assert world.all.admit(extra, HERE) == []
    world.all.gone(b)
    assert world.all.head_complete(extra, is_broker=False) is None
    assert world.all.head_complete(extra, is_broker=False) is None


def test_an_address_has_its_own_limit_and_this_machine_has_none(world: World) -> None:
    world.connect("a", "b", address="192.0.2.1")
    third = Fake("third")
    assert world.all.admit(third, "192.0.2.1") == [Decision(third, ADDRESS)]
    world.all.gone(third)
    assert world.all.admit(Fake("other"), "192.0.2.2") == []
    here = World(replace(LIMITS, total=5))
    here.connect("a", "b", "c", "d", "e")


def test_a_place_of_an_address_is_free_again_when_a_connection_is_gone(world: World) -> None:
    a, _ = world.connect("a", "b", address="192.0.2.1")
    world.all.gone(a)
    world.all.gone(a)
    world.connect("c", address="192.0.2.1")
    assert len(world.all) == 2


def test_idle_connections_end_and_busy_ones_do_not(world: World) -> None:
    a, b = world.connect("a", "b")
    world.all.head_complete(a, is_broker=False)
    world.seconds = 1000.0
    assert world.all.late() == [Decision(b, IDLE)]


def test_headers_have_a_time_from_their_first_byte_on(world: World) -> None:
    (a,) = world.connect("a")
    world.seconds = 100.0
    world.all.head_part(a, 1)
    for world.seconds in (101.0, 105.0, 109.9):
        world.all.head_part(a, int(world.seconds))
        assert world.all.late() == []
    world.seconds = 110.0
    assert world.all.late() == [Decision(a, HEAD_LATE)]
    world.all.head_complete(a, is_broker=False)
    assert world.all.late() == []


def test_all_half_heads_together_are_bounded_and_the_oldest_goes(world: World) -> None:
    a, b, c = world.connect("a", "b", "c")
    assert world.all.head_part(a, HALF_HEADS_BYTES // 2) == []
    assert world.all.head_part(b, HALF_HEADS_BYTES // 2) == []
    assert world.all.head_part(c, 1) == [Decision(a, HEAD_LATE)]
    world.all.gone(a)
    assert world.all.head_part(c, 2) == []
    world.all.head_complete(b, is_broker=False)
    world.all.head_complete(c, is_broker=False)
    assert world.all.head_part(a, HALF_HEADS_BYTES) == []


def test_bodies_have_a_rate_unless_the_broker_does_not_read(world: World) -> None:
    a, b, c = world.connect("a", "b", "c")
    for each in (a, b, c):
        world.all.head_complete(each, is_broker=False)
        world.all.body_part(each)
    a.received_bytes, b.may_send, c.received_bytes = 199, False, 200
    world.seconds += 20.0
    assert world.all.late() == [Decision(a, BODY_LATE)]
    world.all.body_complete(c)
    b.may_send = True
    world.seconds += 20.0
    assert world.all.late() == [Decision(b, BODY_LATE)]


def test_answers_have_a_rate(world: World) -> None:
    a, b = world.connect("a", "b")
    for each in (a, b):
        world.all.head_complete(each, is_broker=False)
        each.unsent_bytes = 1000
        world.all.answer_held_up(each)
    b.unsent_bytes = 800
    world.seconds += 20.0
    assert world.all.late() == [Decision(a, ANSWER_LATE)]
    world.all.answer_goes_on(b)
    world.seconds += 20.0
    assert world.all.late() == []


def test_who_has_been_told_is_the_first_to_go_and_goes_soon(world: World) -> None:
    _, b, _ = world.connect("a", "b", "c")
    world.all.linger(b)
    assert world.all.admit(Fake("d"), HERE) == [Decision(b, GAVE_WAY)]
    world.seconds += LINGER_SECONDS
    assert world.all.late() == [Decision(b, IDLE)]
    world.all.gone(b)
    assert world.all.late() == []


def test_who_lingers_goes_when_the_server_ends(world: World) -> None:
    a, b, _ = world.connect("a", "b", "c")
    for each in (b, a):
        world.all.linger(each)
    assert world.all.lingering() == [Decision(b, IDLE), Decision(a, IDLE)]
    world.all.gone(a)
    assert world.all.lingering() == [Decision(b, IDLE)]


def test_all_unread_parts_of_bodies_together_are_bounded(world: World) -> None:
    a, b, c = world.connect("a", "b", "c")
    assert world.all.unread(a, UNREAD_BYTES) == []
    world.all.read_on(a)
    assert world.all.unread(b, UNREAD_BYTES - 1) == []
    assert world.all.unread(a, 1) == []
    assert world.all.unread(a, 2) == [Decision(b, CROWDED)]
    world.all.gone(b)
    assert world.all.unread(c, UNREAD_BYTES - 2) == []
    assert world.all.unread(b, UNREAD_BYTES) == [Decision(a, CROWDED), Decision(c, CROWDED)]
