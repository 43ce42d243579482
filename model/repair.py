"""Giving up lost messages (docs/design.md §4, "What is given up"), as a small model.

One segment of three acknowledged messages, a file each. Each actor is frozen data and takes one step at a time: one
call of the store. All interleavings are explored. A meddler deletes one object and may put it back at any time, also
after its messages were given up. A maintainer reads the three files, writes a roll-up of them, and deletes them a while
later. A repairer looks for messages that cannot be read, and gives them up by a compare-and-swap of the topic's record.
A reader goes through the segment, and gets an error where it cannot go on. After every step the promises are checked:

- a message that was not given up is on the store, or was taken away by the meddler;
- only messages that the meddler took away are given up;
- a message that was given up is never read again;
- at the end, a reader either passes the whole segment, or gets an error that names a missing object.

`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from model.explorer import explore_all

END = 3


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away.

    `masks_put_back`: a file within a given-up range does not count. `masks_overlapping`: nor does one that reaches
    beyond it. `acts_in_time`: messages are given up less than a grace period after the look at them, so that no file
    was rolled up and deleted since. `asks_before_deleting`: a maintainer reads the record before it deletes what a
    roll-up replaced, and deletes nothing of a roll-up that does not count.
    """

    masks_put_back: bool = True
    masks_overlapping: bool = True
    acts_in_time: bool = True
    asks_before_deleting: bool = True


class Name(NamedTuple):
    """A file that holds the messages `[base, end)`."""

    base: int
    end: int


FILES = frozenset(Name(base, base + 1) for base in range(END))
ROLLED = Name(0, END)


class World(NamedTuple):
    """The store's objects, the meddler's object, the given-up offsets in the record, and the messages read."""

    store: frozenset[Name] = FILES
    away: frozenset[Name] = frozenset()
    given_up: frozenset[int] = frozenset()
    read_too_late: bool = False
    given_up_wrongly: bool = False


class Maintainer(NamedTuple):
    """Reads the files, puts the roll-up, deletes the files."""

    steps: int = 0


class Repairer(NamedTuple):
    """`listed` are the names that it has seen, `lost` the offsets that it is about to give up."""

    listed: frozenset[Name] | None = None
    lost: frozenset[int] | None = None
    done: bool = False


class Reader(NamedTuple):
    """Its next offset."""

    next: int = 0


class Meddler(NamedTuple):
    """Deletes one object, and puts it back."""

    steps: int = 0


Actor = Maintainer | Repairer | Reader | Meddler
Step = tuple[str, World, Actor]


def counting(world: World, rules: Rules) -> set[Name]:
    """Return the files that count, by the record as it stands."""
    return {name for name in world.store if not _is_masked(name, world.given_up, rules)}


def _is_masked(name: Name, given_up: frozenset[int], rules: Rules) -> bool:
    offsets = set(range(name.base, name.end))
    if offsets <= given_up:
        return rules.masks_put_back
    return bool(offsets & given_up) and rules.masks_overlapping


def held(names: set[Name] | frozenset[Name]) -> set[int]:
    """Return the offsets that these files hold."""
    return {offset for name in names for offset in range(name.base, name.end)}


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Yield every step that the actor may take now."""
    if isinstance(actor, Maintainer):
        yield from _maintainer(actor, world, rules)
    elif isinstance(actor, Repairer):
        yield from _repairer(actor, world, rules)
    elif isinstance(actor, Reader):
        yield from _reader(actor, world, rules)
    else:
        yield from _meddler(actor, world)


def _maintainer(maintainer: Maintainer, world: World, rules: Rules) -> Iterator[Step]:
    if maintainer.steps == 0 and world.store >= FILES:
        yield "the maintainer reads the files", world, Maintainer(1)
    if maintainer.steps == 1:
        yield "the roll-up is put", world._replace(store=world.store | {ROLLED}), Maintainer(2)
    if maintainer.steps == 2:
        if rules.asks_before_deleting and (world.given_up or ROLLED not in world.store):
            yield "the maintainer finds that its roll-up does not count", world, Maintainer(3)
        else:
            yield "what was rolled up is deleted", world._replace(store=world.store - FILES), Maintainer(3)


def _repairer(repairer: Repairer, world: World, rules: Rules) -> Iterator[Step]:
    if repairer.done:
        return
    if repairer.listed is None:
        yield "the repairer lists", world, repairer._replace(listed=frozenset(counting(world, rules)))
        return
    if repairer.lost is None:
        # It reads each file: a file that is gone since the listing, or that was not listed, cannot be read.
        lost = frozenset(range(END)) - held(repairer.listed & world.store) - world.given_up
        yield f"the repairer finds {sorted(lost)} lost", world, repairer._replace(lost=lost)
        return
    # Between its look and this an object may be put back. That is the one race that the store leaves open.
    wrongly = not repairer.lost <= held(world.away)
    given_up = world._replace(given_up=world.given_up | repairer.lost, given_up_wrongly=wrongly)
    yield f"{sorted(repairer.lost)} is given up", given_up, repairer._replace(done=True)


def _reader(reader: Reader, world: World, rules: Rules) -> Iterator[Step]:
    if reader.next == END:
        return
    if reader.next in held(counting(world, rules)):
        late = world._replace(read_too_late=world.read_too_late or reader.next in world.given_up)
        yield f"{reader.next} is read", late, Reader(reader.next + 1)
    elif reader.next in world.given_up:
        yield f"{reader.next} is passed over", world, Reader(reader.next + 1)


def _meddler(meddler: Meddler, world: World) -> Iterator[Step]:
    if meddler.steps == 0:
        for name in sorted(world.store):
            yield f"{name} is lost", world._replace(store=world.store - {name}, away=frozenset({name})), Meddler(1)
    if meddler.steps == 1:
        yield f"{sorted(world.away)} is put back", world._replace(store=world.store | world.away), Meddler(2)


# -- promises ----------------------------------------------------------------------------------------------


def complaint(world: World, rules: Rules) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    kept = held(counting(world._replace(store=world.store | world.away), rules))
    if not set(range(END)) - world.given_up <= kept:
        return "a message that was not given up is gone"
    if world.given_up_wrongly:
        return "a message was given up that nobody had taken away"
    if world.read_too_late:
        return "a message was read that had been given up"
    return None


def complaint_at_the_end(world: World, actors: Sequence[Actor]) -> str | None:
    """Return the promise that is broken when no actor can take a step any more."""
    stuck = any(isinstance(actor, Reader) and actor.next < END for actor in actors)
    if stuck and not world.away - world.store:
        return "a reader waits, and nothing is away"
    return None


def explore(actors: Sequence[Actor], rules: Rules) -> tuple[int, set[World]]:
    """Explore all interleavings; returns the number of states, and the worlds at the ends. Raises `Violation`."""
    return explore_all(
        World(),
        actors,
        steps_of=partial(steps_of, rules=rules),
        complaint=lambda world, _: complaint(world, rules),
        complaint_at_the_end=complaint_at_the_end,
        waits=partial(_is_too_early, rules=rules),
    )


def _is_too_early(actor: Actor, actors: Sequence[Actor], rules: Rules) -> bool:
    """Whether the grace period of what a maintainer would delete cannot have ended before a repairer has acted."""
    acting = any(isinstance(each, Repairer) and each.listed is not None and not each.done for each in actors)
    return rules.acts_in_time and acting and isinstance(actor, Maintainer) and actor.steps == 2
