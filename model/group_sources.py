"""A consumer group of a name whose messages may come to lie elsewhere (docs/design.md §10, §12), as a small model.

The name `m` is a topic, then a member of a topic group, then of another one: each time its messages are in another log,
and the segments of all logs have the same ids and offsets. A log has one message here. Two brokers coordinate the
consumer group by turns; that a zombie's records do not count is what `claims.py` explores. Each knows the record of `m`
as it was when it has last read it. What the consumer group has done is one record: of which log it tells, and whether
the message at its first offset is done. All interleavings are explored. After every step:

- the message of the log that `m` has now is not passed by: if it is taken for done, it was handed out and acked;
- an ack that was answered is not forgotten: the message of that log is taken for done as long as `m` has that log.

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

    names_the_log: bool = True
    reads_again: bool = True
    reads_the_named_log: bool = True


class Group(NamedTuple):
    """The group's record: of which log it tells, and whether that log's message is done."""

    log: int
    done: bool = False


class World(NamedTuple):
    """The number of the log that `m` has now; the group; whose turn it is; the logs whose message was acked."""

    log: int = 1
    group: Group | None = None
    coordinator: str = "a"
    acked: frozenset[int] = frozenset()


class Renamer(NamedTuple):
    """Has `m` come to lie in another log, so many times."""

    times: int = 1


class Failover(NamedTuple):
    """Has the other broker coordinate, so many times."""

    times: int = 1


class Broker(NamedTuple):
    """Serves claims and acks while it coordinates. `known` is the log that it takes for that of `m`.

    Between two steps it may hold a claim that was granted in the log `granted`, or be about to read the record again.
    """

    name: str
    known: int = 1
    granted: int = 0
    looks_again: bool = False
    claims: int = 2


Actor = Renamer | Failover | Broker
Step = tuple[str, World, Actor]


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Every step that the actor may take now."""
    if isinstance(actor, Renamer):
        if actor.times:
            yield f"m is in log {world.log + 1}", world._replace(log=world.log + 1), Renamer(actor.times - 1)
    elif isinstance(actor, Failover):
        if actor.times:
            other = "b" if world.coordinator == "a" else "a"
            yield f"{other} coordinates", world._replace(coordinator=other), Failover(actor.times - 1)
    else:
        yield from _broker(actor, world, rules)


def _broker(actor: Broker, world: World, rules: Rules) -> Iterator[Step]:
    name = actor.name
    if actor.known != world.log:
        yield f"{name} hears of log {world.log}", world, actor._replace(known=world.log)
    if world.coordinator != name:
        # What it was about to do does not count any more: whoever asked asks the other one.
        if actor.granted or actor.looks_again:
            yield f"{name} is none any more", world, actor._replace(granted=0, looks_again=False)
        return
    if actor.granted:
        yield from _deliver(actor, world, rules)
    elif actor.looks_again:
        yield from _look_again(actor, world)
    elif actor.claims:
        yield from _claim(actor._replace(claims=actor.claims - 1), world, rules)


def _claim(actor: Broker, world: World, rules: Rules) -> Iterator[Step]:
    name, group = actor.name, world.group
    if group is None:
        made = world._replace(group=Group(actor.known))
        yield f"{name} makes the group, in log {actor.known}", made, actor
    elif rules.names_the_log and group.log != actor.known:
        if rules.reads_again:
            yield f"{name} finds it in another log", world, actor._replace(looks_again=True)
        else:
            yield f"{name} ends the group of log {group.log}", world._replace(group=None), actor
    elif not group.done:
        yield f"{name} grants the message", world, actor._replace(granted=group.log)


def _look_again(actor: Broker, world: World) -> Iterator[Step]:
    """Read the record of `m`, and end the group if it tells of another log than that."""
    read = actor._replace(known=world.log, looks_again=False)
    if world.group is not None and world.group.log != world.log:
        yield f"{actor.name} reads {world.log}, and ends the group", world._replace(group=None), read
    else:
        yield f"{actor.name} reads {world.log}", world, read


def _deliver(actor: Broker, world: World, rules: Rules) -> Iterator[Step]:
    """The granted message is read, and acked by the consumer. Its log may be gone by now: then it is not found."""
    read_from = actor.granted if rules.reads_the_named_log else actor.known
    after = actor._replace(granted=0)
    if world.group is None or world.group.log != actor.granted:
        yield f"{actor.name} has no such group any more", world, after
        return
    done = world._replace(group=world.group._replace(done=True), acked=world.acked | {read_from})
    yield f"the message of log {read_from} is acked at {actor.name}", done, after


def complaint(world: World, actors: Sequence[Actor], rules: Rules) -> str | None:
    """The promise that is broken now; None if all are kept."""
    group = world.group
    is_of_now = group is not None and (group.log == world.log or not rules.names_the_log)
    taken_for_done = group is not None and is_of_now and group.done
    if taken_for_done and world.log not in world.acked:
        return f"the message of log {world.log} is passed by"
    if world.log in world.acked and not taken_for_done:
        return f"the ack in log {world.log} is forgotten"
    return None


def explore(actors: Sequence[Actor], rules: Rules) -> tuple[int, set[World]]:
    """Explore all interleavings; returns the number of states, and the worlds at the ends. Raises `Violation`."""
    return explore_all(
        World(), actors, steps_of=partial(steps_of, rules=rules), complaint=partial(complaint, rules=rules)
    )
