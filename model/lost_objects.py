"""Objects of one segment's log that are lost and put back (docs/design.md §4, "Where a log ends"), as a small model.

Each actor is frozen data and takes one step at a time: one call of the store. All interleavings are explored. An owner
puts files of one message each, a sealer seals in its stead, a meddler deletes one object and may put it back, and a
maintainer rolls the first two files up and then deletes them. After every step the promises are checked:

- nothing acknowledged lies at or behind the seal, so nothing is sealed over;
- a reader gets a hole only where an object was deleted;
- with everything put back, a reader finds every acknowledged message, and no other.

One fault at a time: a sealer that stalls for longer than a grace period, so that its listed files are rolled up and
deleted, is not explored together with the loss of that roll-up, which alone hides its stale seal. And no object is lost
while a sealer that has listed before it was put is about to put its seal under that very name: then the seal takes the
name of the lost file, and names alone cannot show that.

`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from model.explorer import explore_all

FILES = 3


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away."""

    seals_behind_the_last_file: bool = True
    one_put_in_flight: bool = True
    lists_again: bool = True


class Name(NamedTuple):
    """A file holds the messages `[base, end)`; `sealed` is the seal, which holds none."""

    base: int
    end: int
    rolled: bool = False
    sealed: bool = False


class World(NamedTuple):
    """The objects on the store, and what happened: `lost` are deleted objects, `acked` the acknowledged offsets."""

    store: frozenset[Name] = frozenset()
    lost: frozenset[Name] = frozenset()
    acked: frozenset[int] = frozenset()
    was_lost: bool = False


class Owner(NamedTuple):
    """Has put the files up to `next`; `flying` are puts without an answer yet, in the order they were sent."""

    next: int = 0
    flying: tuple[int, ...] = ()


class Sealer(NamedTuple):
    """`listed` are the names of its listing; `looks` counts listings. `reads_late`: the footers, some time after it.

    A last file that is lost between the two leaves no trace, as one that no broker has listed.
    """

    listed: tuple[Name, ...] | None = None
    looks: int = 0
    end: int = -1
    told: bool = False
    reads_late: bool = False


class Maintainer(NamedTuple):
    """Rolls up `[0, 2)`, then deletes what it replaced."""

    steps: int = 0


class Meddler(NamedTuple):
    """Deletes one object, and puts it back."""

    steps: int = 0


Actor = Owner | Sealer | Maintainer | Meddler
Step = tuple[str, World, Actor]


def live(names: Sequence[Name]) -> list[Name]:
    """Return the files that count, in order: at each offset the longest one, over gaps, up to the seal."""
    found: list[Name] = []
    reached = 0
    for name in sorted(names, key=lambda name: (name.base, -name.end, name.sealed)):
        if name.base < reached:
            continue
        found.append(name)
        if name.sealed:
            break
        reached = name.end
    return found


def gaps(names: Sequence[Name]) -> set[int]:
    """Return the offsets before the last file that no file holds."""
    held = {offset for name in live(names) for offset in range(name.base, name.end)}
    end = max((name.end for name in live(names)), default=0)
    return set(range(end)) - held


def end_of(names: Sequence[Name], rules: Rules) -> int:
    """Return where a sealer puts the seal."""
    if rules.seals_behind_the_last_file or not gaps(names):
        return max((name.end for name in names), default=0)
    return min(gaps(names))


# -- steps -------------------------------------------------------------------------------------------------


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Yield every step that the actor may take now."""
    if isinstance(actor, Owner):
        yield from _owner(actor, world, rules)
    elif isinstance(actor, Sealer):
        yield from _sealer(actor, world, rules)
    elif isinstance(actor, Maintainer):
        yield from _maintainer(actor, world)
    else:
        yield from _meddler(actor, world)


def _taken(world: World, base: int) -> bool:
    """Whether the store has the name of the owner's file, or the seal's, which is the same name."""
    return any(name.base == base and not name.rolled for name in world.store)


def _owner(owner: Owner, world: World, rules: Rules) -> Iterator[Step]:
    most = 1 if rules.one_put_in_flight else 2
    if owner.next < FILES and len(owner.flying) < most:
        yield f"the owner sends the put of {owner.next}", world, Owner(owner.next + 1, (*owner.flying, owner.next))
    for base in owner.flying:
        rest = tuple(each for each in owner.flying if each != base)
        if _taken(world, base):
            # Another writer's file: the owner has lost the segment.
            yield f"the put of {base} is refused", world, Owner(FILES, ())
        else:
            stored = world._replace(store=world.store | {Name(base, base + 1)}, acked=world.acked | {base})
            yield f"{base} is stored and acknowledged", stored, Owner(owner.next, rest)


def _sealer(sealer: Sealer, world: World, rules: Rules) -> Iterator[Step]:
    if sealer.end >= 0:
        return
    if sealer.listed is None:
        yield "the sealer lists", world, sealer._replace(listed=tuple(sorted(world.store)))
        return
    # The footers are read after the listing: files rolled up and deleted meanwhile are missing.
    read = [name for name in sealer.listed if not sealer.reads_late or name in world.store]
    if any(name.sealed for name in read):
        return
    if gaps(read) and rules.lists_again and not sealer.looks:
        yield "the sealer finds a gap, and lists again", world, sealer._replace(listed=None, looks=1)
        return
    end, told = end_of(read, rules), bool(gaps(read))
    if _taken(world, end):
        yield f"the seal at {end} is refused", world, sealer._replace(listed=None)
    else:
        sealed = world._replace(store=world.store | {Name(end, end, sealed=True)})
        yield f"the segment is sealed at {end}", sealed, sealer._replace(listed=(), end=end, told=told)


def _maintainer(maintainer: Maintainer, world: World) -> Iterator[Step]:
    pair = {Name(0, 1), Name(1, 2)}
    if maintainer.steps == 0 and pair <= world.store:
        yield "[0, 2) is rolled up", world._replace(store=world.store | {Name(0, 2, rolled=True)}), Maintainer(1)
    if maintainer.steps == 1:
        yield "what was rolled up is deleted", world._replace(store=world.store - pair), Maintainer(2)


def _meddler(meddler: Meddler, world: World) -> Iterator[Step]:
    if meddler.steps == 0:
        # If no broker has seen anything behind an object, its loss leaves no trace: the model deletes objects that
        # others follow.
        last = max((name.base for name in world.store if not name.sealed), default=0)
        for name in sorted(world.store):
            is_needed = not any(each.rolled and each.base <= name.base < each.end for each in world.store - {name})
            if name.base < last and not name.sealed and is_needed:
                gone = world._replace(store=world.store - {name}, lost=frozenset({name}), was_lost=True)
                yield f"{name} is lost", gone, Meddler(1)
    if meddler.steps == 1:
        [name] = world.lost
        if not any(each.base == name.base and each.rolled == name.rolled for each in world.store):
            yield f"{name} is put back", world._replace(store=world.store | {name}, lost=frozenset()), Meddler(2)


# -- promises ----------------------------------------------------------------------------------------------


def complaint(world: World, actors: Sequence[Actor]) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    # A seal within a roll-up came too late to count: its sealer recovers once more after a slow put, and finds that.
    seal = min((name.base for name in live(sorted(world.store)) if name.sealed), default=None)
    if seal is not None and any(offset >= seal for offset in world.acked):
        return "an acknowledged message was sealed over"
    for actor in actors:
        if isinstance(actor, Sealer) and actor.told and not world.was_lost:
            return "a hole was told where nothing was lost"
    if world.was_lost and not world.lost:
        held = {offset for name in live(sorted(world.store)) for offset in range(name.base, name.end)}
        if world.acked != held:
            return "what was put back is not read again"
    return None


def explore(actors: Sequence[Actor], rules: Rules) -> tuple[int, set[World]]:
    """Explore all interleavings; returns the number of states, and the worlds at the ends. Raises `Violation`."""
    return explore_all(
        World(), actors, steps_of=partial(steps_of, rules=rules), complaint=complaint, waits=_may_not_lose_now
    )


def _may_not_lose_now(actor: Actor, actors: Sequence[Actor]) -> bool:
    """Whether the meddler has to wait until a sealer that has listed has put its seal: see the one fault above."""
    sealing = any(isinstance(each, Sealer) and each.listed is not None and each.end < 0 for each in actors)
    return isinstance(actor, Meddler) and sealing and not actor.steps
