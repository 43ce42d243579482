"""Which transfers do not get on."""

from mq.process.connections.pace import Pace


def pace() -> Pace[str]:
    """Each has to move 100 bytes in 10 seconds."""
    return Pace(10.0, 10)


def test_who_moves_too_little_in_a_window_is_late_once() -> None:
    watched = pace()
    watched.begin("slow", 0.0, 0)
    watched.begin("fast", 0.0, 0)
    done = {"slow": 99, "fast": 100}
    assert watched.late(9.9, done.__getitem__) == []
    assert watched.late(10.0, done.__getitem__) == ["slow"]
    assert watched.late(10.0, done.__getitem__) == []
    assert len(watched) == 1


def test_a_good_start_does_not_excuse_what_follows() -> None:
    watched = pace()
    watched.begin("bursts", 0.0, 0)
    assert watched.late(10.0, lambda _: 1_000_000) == []
    assert watched.late(19.9, lambda _: 1_000_000) == []
    assert watched.late(20.0, lambda _: 1_000_099) == ["bursts"]


def test_who_may_not_move_is_not_late_and_begins_anew() -> None:
    watched = pace()
    watched.begin("held", 0.0, 7)
    assert watched.late(10.0, lambda _: None) == []
    assert watched.late(19.9, lambda _: 7) == []
    assert watched.late(20.0, lambda _: 7) == ["held"]


def test_what_has_ended_is_not_late_and_the_order_of_windows_holds() -> None:
    watched = pace()
    watched.begin("a", 0.0, 0)
    watched.begin("b", 1.0, 0)
    watched.begin("c", 2.0, 0)
    watched.end("b")
    watched.end("never there")
    assert watched.late(10.0, lambda _: 100) == []  # a is on its second window now, behind c
    assert watched.late(12.0, lambda _: 0) == ["c"]
    assert watched.late(20.0, lambda _: 199) == ["a"]
    assert len(watched) == 0
