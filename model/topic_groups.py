"""The members of topic groups (docs/design.md §10), as a small model of records and compare-and-swaps.

One name, `m`, is wanted by all: a group `g` that is created and deleted again and again, another group `h`, and users
that create and delete a topic `m`. Each record is one object that is changed by compare-and-swap. A publisher to `m`
reads the record of `m`, and that of its group if it names one, and stores the message there, if that log is open. All
interleavings are explored. After every step:

- an acknowledged message is read by the name `m` as long as the log that holds it is there: a group that is not
  deleted, or a topic `m` that is not;
- no client gets the answer that `m` has joined a group that was there all the while, unless it has.

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

    numbers_groups: bool = True
    looks_at_the_group: bool = True
    compares_the_record: bool = True
    refuses_topics: bool = True


class Group(NamedTuple):
    """The record of a group: its number among those of its name, and whether it is there."""

    number: int = 0
    alive: bool = False


class Owner(NamedTuple):
    """The record of `m`: free, a `topic` of that number, or a member of that group."""

    kind: str = "free"
    number: int = 0


class World(NamedTuple):
    """The store's objects. `version` is that of the record of `m`. `stored` are the logs with messages."""

    g: Group = Group()
    h: Group = Group()
    owner: Owner = Owner()
    version: int = 0
    topics: int = 0
    stored: frozenset[Owner] = frozenset()
    told: frozenset[Owner] = frozenset()


class Putter(NamedTuple):
    """Puts the group: creates it if it is missing, then makes `m` join. `seen` and `version` are of `m`'s record."""

    group: str
    step: str = "group"
    number: int = 0
    seen: Owner = Owner()
    version: int = 0


class Deleter(NamedTuple):
    """Deletes the group, once it is there."""

    group: str
    step: str = "delete"


class Creator(NamedTuple):
    """Creates a topic `m`, and deletes it again if it `deletes`."""

    deletes: bool = False
    step: str = "read"
    seen: Owner = Owner()
    version: int = 0


class Publisher(NamedTuple):
    """Publishes to `m` once."""

    step: str = "read"
    seen: Owner = Owner()


Actor = Putter | Deleter | Creator | Publisher
Step = tuple[str, World, Actor]


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Yield every step that the actor may take now."""
    if isinstance(actor, Putter):
        yield from _putter(actor, world, rules)
    elif isinstance(actor, Deleter):
        yield from _deleter(actor, world)
    elif isinstance(actor, Creator):
        yield from _creator(actor, world, rules)
    else:
        yield from _publisher(actor, world, rules)


def _with_group(world: World, name: str, group: Group) -> World:
    return world._replace(g=group) if name == "g" else world._replace(h=group)


def _group(world: World, name: str) -> Group:
    return world.g if name == "g" else world.h


def _counts(world: World, owner: Owner, rules: Rules) -> bool:
    """Whether the log that has the messages, by the record, is there."""
    if owner.kind == "topic":
        return True
    if owner.kind == "free":
        return False
    group = _group(world, owner.kind)
    return group.alive and (not rules.numbers_groups or group.number == owner.number)


def _swapped(world: World, owner: Owner, version: int, rules: Rules) -> World | None:
    """Return the record of `m` after a compare-and-swap; None if it fails."""
    if rules.compares_the_record and world.version != version:
        return None
    return world._replace(owner=owner, version=world.version + 1)


def _putter(actor: Putter, world: World, rules: Rules) -> Iterator[Step]:
    name, group = actor.group, _group(world, actor.group)
    if actor.step == "group":
        number = group.number if group.alive else group.number + 1
        made = _with_group(world, name, Group(number, True))
        yield f"group {name} {number} is put", made, actor._replace(step="read", number=number)
    elif actor.step == "read":
        read = actor._replace(step="look", seen=world.owner, version=world.version)
        yield f"{name} reads the record: {world.owner.kind}", world, read
    elif actor.step == "look":
        mine = Owner(name, actor.number)
        if actor.seen == mine:
            yield f"{name} finds m in it", _told(world, mine), actor._replace(step="done")
        elif _is_taken(actor.seen, world, rules):
            yield f"{name} finds m taken", world, actor._replace(step="done")
        else:
            yield f"{name} finds m free", world, actor._replace(step="join")
    elif actor.step == "join":
        mine = Owner(name, actor.number)
        joined = _swapped(world, mine, actor.version, rules)
        if joined is None:
            yield f"{name} is too late", world, actor._replace(step="read")
        else:
            yield f"m joins {name} {actor.number}", _told(joined, mine), actor._replace(step="done")


def _told(world: World, owner: Owner) -> World:
    return world._replace(told=world.told | {owner})


def _is_taken(seen: Owner, world: World, rules: Rules) -> bool:
    if seen.kind == "topic":
        return rules.refuses_topics
    return seen.kind != "free" and rules.looks_at_the_group and _counts(world, seen, rules)


def _deleter(actor: Deleter, world: World) -> Iterator[Step]:
    group = _group(world, actor.group)
    if actor.step == "delete" and group.alive:
        gone = _with_group(world, actor.group, group._replace(alive=False))
        yield f"group {actor.group} {group.number} is deleted", gone, actor._replace(step="done")


def _creator(actor: Creator, world: World, rules: Rules) -> Iterator[Step]:
    if actor.step == "read":
        read = actor._replace(step="look", seen=world.owner, version=world.version)
        yield f"the creator reads the record: {world.owner.kind}", world, read
    elif actor.step == "look":
        taken = actor.seen.kind == "topic" or _is_taken(actor.seen, world, rules)
        following = "done" if taken else "create"
        yield f"the creator looks: {following}", world, actor._replace(step=following)
    elif actor.step == "create":
        number = world.topics + 1
        made = _swapped(world._replace(topics=number), Owner("topic", number), actor.version, rules)
        if made is None:
            yield "the creator is too late", world, actor._replace(step="read")
        else:
            yield "the topic is made", made, actor._replace(step="delete" if actor.deletes else "done")
    elif actor.step == "delete" and world.owner.kind == "topic":
        gone = world._replace(owner=Owner(), version=world.version + 1)
        yield "the topic is deleted", gone, actor._replace(step="done")


def _publisher(actor: Publisher, world: World, rules: Rules) -> Iterator[Step]:
    if actor.step == "read":
        yield f"a publisher reads the record: {world.owner.kind}", world, actor._replace(step="find", seen=world.owner)
    elif actor.step == "find":
        # Its knowledge of the group may be older; a log takes messages as long as it is there.
        following = "store" if _counts(world, actor.seen, rules) else "done"
        yield f"it finds where m is: {following}", world, actor._replace(step=following)
    elif actor.step == "store" and _is_open(world, actor.seen, rules):
        stored = world._replace(stored=world.stored | {_log_of(world, actor.seen)})
        yield "its message is acknowledged", stored, actor._replace(step="done")


def _is_open(world: World, seen: Owner, rules: Rules) -> bool:
    return world.owner == seen if seen.kind == "topic" else _counts(world, seen, rules)


def _log_of(world: World, seen: Owner) -> Owner:
    return seen if seen.kind == "topic" else Owner(seen.kind, _group(world, seen.kind).number)


def complaint(world: World, actors: Sequence[Actor], rules: Rules) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    found = _log_of(world, world.owner) if _counts(world, world.owner, rules) else None
    for log in world.stored:
        # A deleted topic is gone with its messages; the record of `m` alone says that it is there.
        is_there = log == Owner("topic", world.topics) and _was_not_deleted(actors)
        if log.kind != "topic":
            is_there = _group(world, log.kind) == Group(log.number, True)
        if is_there and found != log:
            return f"an acknowledged message in {log.kind} {log.number} is not read by its name"
    for owner in world.told:
        if _group(world, owner.kind) == Group(owner.number, True) and world.owner != owner:
            return f"m was told to be in {owner.kind} {owner.number}, and is not"
    return None


def _was_not_deleted(actors: Sequence[Actor]) -> bool:
    return not any(isinstance(each, Creator) and each.deletes and each.step == "done" for each in actors)


def explore(actors: Sequence[Actor], rules: Rules) -> tuple[int, set[World]]:
    """Explore all interleavings; returns the number of states, and the worlds at the ends. Raises `Violation`."""
    return explore_all(
        World(), actors, steps_of=partial(steps_of, rules=rules), complaint=partial(complaint, rules=rules)
    )
