"""Explores all interleavings of a model's actors, and reports the steps by which a promise is broken.

A state is a world and its actors, all of them hashable. Each actor takes one step at a time. The same state is reached
in many ways; it is looked at once. Worlds and actors are numbered, and a state is their numbers: each is hashed once,
not with every state that it is part of, and an actor's possible steps in a world are computed once.
"""

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeAlias, TypeVar

World = TypeVar("World", bound=Hashable)
Actor = TypeVar("Actor", bound=Hashable)
Key: TypeAlias = tuple[int, ...]
"""A state: the number of its world, and those of its actors."""
Steps: TypeAlias = list[tuple[str, int, int]]
"""What happens, and the numbers of the world and the actor after it."""


class Violation(Exception):
    """A promise is broken; the message names it, and the steps that broke it."""


class Numbers:
    """Numbers parts of states, from 0 on; `parts` has the parts by their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[type, Hashable], int] = {}
        self.parts: list[Any] = []

    def of(self, part: Hashable) -> int:
        """Return a part's number, the same for all equal parts of one class: named tuples alone ignore the class."""
        number = self._numbers.setdefault((type(part), part), len(self.parts))
        if number == len(self.parts):
            self.parts.append(part)
        return number


class _Explorer(Generic[World, Actor]):
    """One exploration; its arguments are those of `explore_all`."""

    def __init__(
        self,
        steps_of: Callable[[Actor, World], Iterable[tuple[str, World, Actor]]],
        complaint: Callable[[World, Sequence[Actor]], str | None],
        complaint_at_the_end: Callable[[World, Sequence[Actor]], str | None],
        waits: Callable[[Actor, Sequence[Actor]], bool],
    ) -> None:
        self._steps_of, self._complaint, self._waits = steps_of, complaint, waits
        self._complaint_at_the_end = complaint_at_the_end
        self._worlds, self._actors = Numbers(), Numbers()
        self._steps: dict[tuple[int, int], Steps] = {}
        # The state from which each was reached first, and the step.
        self._ways: dict[Key, tuple[Key, str] | None] = {}

    def explore(self, first: World, actors: Sequence[Actor]) -> tuple[int, set[World]]:
        """Explore. Raises `Violation`."""
        begin = (self._worlds.of(first), *map(self._actors.of, actors))
        ways = self._ways
        ways[begin] = None
        waiting, ends = [begin], set[World]()
        while waiting:
            state = waiting.pop()
            following = list(self._following(state))
            if (broken := self._broken(state, is_end=not following)) is not None:
                raise Violation("\n".join([f"{broken}:", *self._way(state)]))
            if not following:
                ends.add(self._worlds.parts[state[0]])
            for what, reached in following:
                if reached not in ways:
                    ways[reached] = (state, what)
                    waiting.append(reached)
        return len(ways), ends

    def _following(self, state: Key) -> Iterator[tuple[str, Key]]:
        now = self._now(state)
        for place, actor in enumerate(now, 1):
            if not self._waits(actor, now):
                before, after = state[1:place], state[place + 1 :]
                for what, world, changed in self._taken(state[0], state[place]):
                    yield what, (world, *before, changed, *after)

    def _taken(self, world: int, actor: int) -> Steps:
        steps = self._steps.get((world, actor))
        if steps is None:
            steps = self._steps[world, actor] = [
                (what, self._worlds.of(after), self._actors.of(changed))
                for what, after, changed in self._steps_of(self._actors.parts[actor], self._worlds.parts[world])
            ]
        return steps

    def _broken(self, state: Key, *, is_end: bool) -> str | None:
        world, now = self._worlds.parts[state[0]], self._now(state)
        return self._complaint(world, now) or (self._complaint_at_the_end(world, now) if is_end else None)

    def _now(self, state: Key) -> tuple[Actor, ...]:
        return tuple(self._actors.parts[number] for number in state[1:])

    def _way(self, state: Key) -> list[str]:
        steps: list[str] = []
        while (before := self._ways[state]) is not None:
            state, what = before
            steps.append(what)
        return steps[::-1]


def explore_all(
    first: World,
    actors: Sequence[Actor],
    *,
    steps_of: Callable[[Actor, World], Iterable[tuple[str, World, Actor]]],
    complaint: Callable[[World, Sequence[Actor]], str | None],
    complaint_at_the_end: Callable[[World, Sequence[Actor]], str | None] = lambda world, actors: None,
    waits: Callable[[Actor, Sequence[Actor]], bool] = lambda actor, actors: False,
) -> tuple[int, set[World]]:
    """Explore from the first world on; returns the number of states, and the worlds in which no actor can take a step.

    `steps_of` returns the steps that an actor may take: what happens, the world after it, and the actor after it. An
    actor takes none while it `waits` for the others. `complaint` returns the broken promise of a state, and
    `complaint_at_the_end` one that is broken when no actor can take a step. Raises `Violation`.
    """
    with without_looking_for_garbage():
        return _Explorer(steps_of, complaint, complaint_at_the_end, waits).explore(first, actors)


@contextmanager
def without_looking_for_garbage() -> Iterator[None]:
    """Pause the garbage collector: states are tuples of tuples, millions of them, and none is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
