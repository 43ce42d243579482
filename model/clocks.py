"""Clocks that are wrong or stand still, and decisions by them (docs/design.md §4, "Names must not come back").

One name of one segment, one grace period, one message under retention. The owner's put of that name is stalled, on a
machine that may be paused. Others take the name, roll it up, and delete it. The store's time goes on with every tick. A
machine's monotonic clock stands still while it is paused; its wall clock does too, and is set at some time. With
`directory`, everything is on one machine and the store's time is that of its wall clock.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

GRACE = 4
RETENTION = 5
LAST_TICK = 7
STEPS = (-5, 5)


class Violation(Exception):
    """A promise is broken; the message says which."""


@dataclass(frozen=True)
class Rules:
    """The safeguards. Each is needed: without any one of them a promise is broken in some scene."""

    proofs_by_store: bool = True
    deletes_by_store: bool = True
    expires_by_storing: bool = True
    without_leaps: bool = True


@dataclass(frozen=True)
class State:
    """The whole state. `put` is idle, sent, landed or over. `name` is its holder. Times are of the noted kind."""

    tick: int = 0
    owner_ticks: int = 0
    keeper_ticks: int = 0
    keeper_set: int = 0
    was_set: bool = False
    put: str = "idle"
    told_at_landing: int = 0
    name: str = ""
    acknowledged: bool = False
    superseded: tuple[int, int] | None = None
    """The true time, and the one that was noted."""
    message: tuple[int, int, int] | None = None
    """The true time at which it was stored, its timestamp, and the store's time that was noted."""
    expired: bool = False
    leapt: int = 0
    """How far the store's clock and the keeper's wall clock have leapt together."""


@dataclass(frozen=True)
class Scene:
    """What may happen: a stalled put, or (`retention`) a message that expires."""

    directory: bool = False
    retention: bool = False
    rules: Rules = Rules()

    def wall(self, state: State) -> int:
        return state.keeper_ticks + state.keeper_set

    def told(self, state: State) -> int:
        """Return the store's time."""
        return self.wall(state) if self.directory else state.tick

    def next_states(self, state: State) -> Iterator[State]:
        yield from self._time(state)
        if self.retention:
            yield from self._retention(state)
        else:
            yield from self._owner(state)
            yield from self._others(state)

    def _time(self, state: State) -> Iterator[State]:
        if state.tick < LAST_TICK:
            for owner in (0, 1):
                for keeper in (owner,) if self.directory else (0, 1):
                    yield self._looked(
                        state,
                        replace(
                            state,
                            tick=state.tick + 1,
                            owner_ticks=state.owner_ticks + owner,
                            keeper_ticks=state.keeper_ticks + keeper,
                        ),
                    )
        if not state.was_set:
            for step in STEPS:
                yield self._looked(state, replace(state, keeper_set=step, was_set=True))

    def _looked(self, before: State, state: State) -> State:
        """Read the store's time before the keeper decides: from then on it leaves out a leap of both clocks."""
        told = self.told(state)
        jump = (told - self.told(before)) - (state.keeper_ticks - before.keeper_ticks)
        return replace(state, leapt=max(state.leapt + jump, 0)) if told == self.wall(state) else state

    def _now(self, state: State) -> int:
        """Return the time by which the keeper deletes."""
        if not self.rules.deletes_by_store:
            return self.wall(state)
        return self.told(state) - (state.leapt if self.rules.without_leaps else 0)

    def _owner(self, state: State) -> Iterator[State]:
        """Yield the owner's steps. Its last proof is of tick 0, when its clock and the store's showed 0."""
        if state.put == "idle":
            yield replace(state, put="sent")
        if state.put == "sent":
            landed = replace(state, told_at_landing=self.told(state))
            yield replace(landed, put="landed", name="owner") if not state.name else replace(landed, put="over")
        if state.put == "landed":
            age = max(state.owner_ticks, state.told_at_landing) if self.rules.proofs_by_store else state.owner_ticks
            # A look finds the roll-up, and that the file does not count.
            fine = age <= GRACE / 2 or state.superseded is None
            after = replace(state, put="over", acknowledged=fine)
            if after.acknowledged and after.superseded is not None:
                raise Violation("acknowledged, and a roll-up of others counts at its offset")
            yield after

    def _others(self, state: State) -> Iterator[State]:
        if not state.name and state.superseded is None:
            yield replace(state, name="others")
        if state.name == "others" and state.superseded is None:
            noted = self.told(state) if self.rules.deletes_by_store else self.wall(state)
            yield replace(state, superseded=(state.tick, noted))
        if state.name and state.superseded is not None and self._now(state) - state.superseded[1] >= GRACE:
            if state.tick - state.superseded[0] < GRACE:
                raise Violation("deleted before a grace period was over")
            yield replace(state, name="")

    def _retention(self, state: State) -> Iterator[State]:
        if state.message is None:
            yield replace(state, message=(state.tick, self.wall(state), self.told(state)))
        elif not state.expired:
            true, stamp, told = state.message
            stored = max(stamp, told) if self.rules.expires_by_storing else stamp
            if self._now(state) - stored >= RETENTION:
                if state.tick - true < RETENTION:
                    raise Violation("expired before retention was over")
                yield replace(state, expired=True)


def explore(scene: Scene) -> int:
    """Visit every state that the scene can reach; returns their number. Raises `Violation`."""
    seen = {State()}
    left = [State()]
    while left:
        for state in scene.next_states(left.pop()):
            if state not in seen:
                seen.add(state)
                left.append(state)
    return len(seen)
