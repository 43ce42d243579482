"""What comes of bodies that were answered before their end is read at a low rate, in turn."""

from filer.clock import ManualClock, settle
from mq.process.connections.unwanted import STEP_SECONDS, Unwanted


class Sender:
    def __init__(self, name: str, read: list[str]) -> None:
        self.name, self.read = name, read
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def read_on(self) -> None:
        self.paused = False
        self.read.append(self.name)


async def test_one_piece_at_a_time_of_all_connections_together() -> None:
    clock, read = ManualClock(), list[str]()
    unwanted = Unwanted(clock)
    a, b = Sender("a", read), Sender("b", read)
    for sender in (a, b, a):
        unwanted.came(sender)
    await settle()
    assert a.paused and b.paused and not read
    await clock.advance(STEP_SECONDS)
    assert read == ["a"] and not a.paused and b.paused
    unwanted.came(a)
    await clock.advance(STEP_SECONDS)
    assert read == ["a", "b"]
    await clock.advance(STEP_SECONDS)
    assert read == ["a", "b", "a"]


async def test_nothing_runs_when_nobody_sends_and_it_begins_again() -> None:
    clock, read = ManualClock(), list[str]()
    unwanted = Unwanted(clock)
    for name in "ab":
        unwanted.came(Sender(name, read))
        await settle()
        await clock.advance(STEP_SECONDS)
    assert read == ["a", "b"]


async def test_who_is_gone_is_not_read() -> None:
    clock, read = ManualClock(), list[str]()
    unwanted = Unwanted(clock)
    a, b = Sender("a", read), Sender("b", read)
    for sender in (a, b):
        unwanted.came(sender)
    await settle()
    unwanted.gone(a)
    unwanted.gone(a)
    await clock.advance(STEP_SECONDS)
    unwanted.came(b)
    await settle()
    unwanted.gone(b)
    await clock.advance(STEP_SECONDS)
    assert read == ["b"]
