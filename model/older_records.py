"""A topic.json that is put back to an older version (docs/design.md §4), as a small model of marks and sweeps.

A bulk load is adopted by a compare-and-swap of the record. The committing broker then leaves a mark of that version,
looks at the record once more, and only then answers. Another broker changes the record meanwhile, and marks its version
too. A meddler puts an older version back, at any moment, once. A broker that starts reads the record, looks for marks
of newer versions, and gives up every load that is not adopted by its record: then its files are deleted. All
interleavings are explored. After every step:

- the files of a load with an answered commit are there;
- a broker reports an older record only if one was put back.

One fault at a time: no record is put back between the first read of a broker and its compare-and-swap. If that happens,
the bytes may be the very ones that it has read, and no comparison shows it.

`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from model.explorer import explore_all


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away."""

    marks_before_it_answers: bool = True
    marks_after_the_swap: bool = True
    looks_before_it_answers: bool = True
    reads_again_before_it_tells: bool = True


class Record(NamedTuple):
    """topic.json."""

    version: int = 1
    adopted: bool = False


class World(NamedTuple):
    """The objects on the store, and what happened: `past` are the records before this one."""

    record: Record = Record()
    past: tuple[Record, ...] = ()
    mark: int = 0
    files: bool = True
    answered: bool = False
    was_put_back: bool = False


class Committer(NamedTuple):
    """Adopts the load, marks, looks, answers. `version` is that of the adoption."""

    step: str = "swap"
    version: int = 0


class Changer(NamedTuple):
    """Changes another setting of the topic, and marks the version."""

    step: str = "swap"
    version: int = 0


class Starter(NamedTuple):
    """Reads the record, looks at the marks, and sweeps."""

    step: str = "read"
    seen: Record = Record()
    mark: int = 0


class Meddler(NamedTuple):
    """Puts an older record back."""

    done: bool = False


Actor = Committer | Changer | Starter | Meddler
Step = tuple[str, World, Actor]


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Yield every step that the actor may take now."""
    if isinstance(actor, Committer):
        yield from _committer(actor, world, rules)
    elif isinstance(actor, Changer):
        yield from _changer(actor, world, rules)
    elif isinstance(actor, Starter):
        yield from _starter(actor, world, rules)
    elif not actor.done:
        for older in world.past:
            back = world._replace(record=older, was_put_back=True)
            yield f"version {older.version} is put back", back, Meddler(True)


def _swapped(world: World, record: Record) -> World:
    return world._replace(record=record, past=(*world.past, world.record))


def _marked(world: World, version: int) -> World:
    return world._replace(mark=max(world.mark, version))


def _committer(actor: Committer, world: World, rules: Rules) -> Iterator[Step]:
    """Yield the committer's steps. It knows the record before its swap, so it changes no record that was put back."""
    if actor.step == "swap" and not world.was_put_back and world.files:
        version = world.record.version + 1
        if not rules.marks_after_the_swap and not actor.version:
            yield "the commit is marked too early", _marked(world, version), Committer("swap", version)
            return
        following = "mark" if rules.marks_before_it_answers else "look"
        yield "the load is adopted", _swapped(world, Record(version, True)), Committer(following, version)
    elif actor.step == "mark":
        yield "the adoption is marked", _marked(world, actor.version), Committer("look", actor.version)
    elif actor.step == "look":
        # The version alone does not show it: the sweep of an older record has taken its version up again.
        if not rules.looks_before_it_answers or world.record.adopted:
            yield "the committer finds it so", world, Committer("answer", actor.version)
    elif actor.step == "answer":
        yield "the commit is answered", world._replace(answered=True), Committer("done", actor.version)


def _changer(actor: Changer, world: World, rules: Rules) -> Iterator[Step]:
    if actor.step == "swap" and not world.was_put_back:
        version = world.record.version + 1
        changed = _swapped(world, Record(version, world.record.adopted))
        yield "something else is changed", changed, Changer("mark", version)
    elif actor.step == "mark":
        yield "that is marked", _marked(world, actor.version), Changer("done", actor.version)


def _starter(actor: Starter, world: World, rules: Rules) -> Iterator[Step]:
    if actor.step == "read":
        yield "a broker starts and reads", world, Starter("list", world.record)
    elif actor.step == "list":
        if world.mark <= actor.seen.version:
            yield "it finds no newer mark", world, Starter("sweep", actor.seen)
        elif rules.reads_again_before_it_tells:
            yield "it finds a newer mark", world, Starter("again", actor.seen, world.mark)
        else:
            yield "it tells of an older record", world, Starter("told", actor.seen)
    elif actor.step == "again":
        step = "told" if world.record.version < actor.mark else "sweep"
        yield f"it reads again: {step}", world, Starter(step, world.record)
    elif actor.step == "sweep" and world.record == actor.seen and not actor.seen.adopted:
        swept = _swapped(world, Record(actor.seen.version + 1))._replace(files=False)
        yield "the load is given up and its files are deleted", swept, Starter("done", actor.seen)


def complaint(world: World, actors: Sequence[Actor]) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    if world.answered and not world.files:
        return "a load whose commit was answered is deleted"
    if not world.was_put_back and any(isinstance(each, Starter) and each.step == "told" for each in actors):
        return "an older record was told where none was put back"
    return None


def explore(actors: Sequence[Actor], rules: Rules) -> tuple[int, set[World]]:
    """Explore all interleavings; returns the number of states, and the worlds at the ends. Raises `Violation`."""
    return explore_all(
        World(), actors, steps_of=partial(steps_of, rules=rules), complaint=complaint, waits=_may_not_put_back_now
    )


def _may_not_put_back_now(actor: Actor, actors: Sequence[Actor]) -> bool:
    """Whether the meddler has to wait for a broker between its first read and its swap: see the one fault above."""
    reading = any(isinstance(each, Starter) and each.step in ("list", "again", "sweep") for each in actors)
    return isinstance(actor, Meddler) and reading
