"""Explores all interleavings of a model's actors, and tells by which steps a promise is broken.

A state is a world and its actors, all of them hashable. Each actor takes one step at a time. The same state is reached
by many ways; it is looked at once.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias, TypeVar

World = TypeVar("World", bound=Hashable)
Actor = TypeVar("Actor", bound=Hashable)
State: TypeAlias = tuple[World, tuple[Actor, ...]]
Ways: TypeAlias = dict[State[World, Actor], tuple[State[World, Actor], str] | None]
"""From which state each was reached first, and by what."""


class Violation(Exception):
    """A promise is broken; the message says which one, and by which steps."""


def explore_all(
    first: World,
    actors: Sequence[Actor],
    *,
    steps_of: Callable[[Actor, World], Iterable[tuple[str, World, Actor]]],
    complaint: Callable[[World, Sequence[Actor]], str | None],
    complaint_at_the_end: Callable[[World, Sequence[Actor]], str | None] = lambda world, actors: None,
    waits: Callable[[Actor, Sequence[Actor]], bool] = lambda actor, actors: False,
) -> tuple[int, set[World]]:
    """Explore from the first world on; returns the number of states, and the worlds where nobody can take a step.

    `steps_of` are the steps that an actor may take: what happens, the world after it, and the actor after it. It takes
    none while it `waits` for the others. `complaint` is the promise that is broken in a state, and
    `complaint_at_the_end` one that is broken where nobody can take a step. Raises `Violation`.
    """
    begin = (first, tuple(actors))
    ways: Ways[World, Actor] = {begin: None}
    waiting, ends = [begin], set[World]()
    while waiting:
        state = waiting.pop()
        world, now = state
        following = [
            (what, (after, (*now[:number], changed, *now[number + 1 :])))
            for number, actor in enumerate(now)
            if not waits(actor, now)
            for what, after, changed in steps_of(actor, world)
        ]
        broken = complaint(world, now) or (None if following else complaint_at_the_end(world, now))
        if broken is not None:
            raise Violation("\n".join([f"{broken}:", *_way(state, ways)]))
        if not following:
            ends.add(world)
        for what, reached in following:
            if reached not in ways:
                ways[reached] = (state, what)
                waiting.append(reached)
    return len(ways), ends


def _way(state: State[World, Actor], ways: Ways[World, Actor]) -> list[str]:
    steps: list[str] = []
    while (before := ways[state]) is not None:
        state, what = before
        steps.append(what)
    return steps[::-1]
