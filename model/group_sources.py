"""A consumer group of a name whose messages may come to lie elsewhere (docs/design.md §10, §12), as a small model.

The name `m` is a topic, then a member of a topic group, then of another one, or a topic again. Each time its messages
are in another chain, and the segments of all chains have the same ids and offsets. A topic that comes back goes on in
its own chain, where the messages of before are gone: each stretch of time is a *life*, with one message here. Two
brokers coordinate the consumer group by turns; that a zombie's records do not count is what `claims.py` explores. Each
knows the record of `m` as of its last read. The work of the consumer group is one record: its chain, and the lives
whose message is done. All interleavings are explored. After every step:

- the message of `m` now is not passed by: if it counts as done, it was handed out and acked;
- an ack that was answered is not forgotten: that message counts as done as long as `m` is in that life;
- a consumer group ends with its life: it never serves a later one, even if `m` is in the same chain again.

`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from model.explorer import explore_all


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away.

    With `knows_no_lives`, brokers are of a version without lives: the last promise is not theirs.
    """

    names_the_chain: bool = True
    reads_again: bool = True
    reads_the_named_chain: bool = True
    looks_as_it_ends: bool = True
    ends_with_its_life: bool = True
    knows_no_lives: bool = False


class Place(NamedTuple):
    """Where messages are: a chain, and a life of `m`."""

    chain: int
    life: int


FIRST = Place(1, 1)


class Group(NamedTuple):
    """The group's record: its chain, and the lives whose message is done.

    `number` is its incarnation. The positions in its record show in which `life` it began: ids of segments, which are
    never used again, lie below those of a later one. A record of `m` names its first.
    """

    number: int
    chain: int
    life: int
    done: frozenset[int] = frozenset()


class World(NamedTuple):
    """The place of `m`, the group, and the turn of a broker.

    It has how many groups there were, the number of the turn, the acked messages by life, and whether a group has
    served a later life than its own.
    """

    place: Place = FIRST
    group: Group | None = None
    made: int = 0
    coordinator: str = "a"
    term: int = 0
    acked: frozenset[int] = frozenset()
    outlived: bool = False


class Renamer(NamedTuple):
    """Moves `m` to these chains, one after the other."""

    chains: tuple[int, ...] = (2,)


class Failover(NamedTuple):
    """Makes the other broker coordinate, so many times."""

    times: int = 1


class Ending(NamedTuple):
    """A group that a broker is about to end: its number, and the term in which the broker has found it over."""

    number: int
    term: int


class Broker(NamedTuple):
    """Serves claims and acks while it coordinates. `known` is where it believes `m` to be.

    Between two steps it may hold a claim that was granted at the place `granted`, be about to read the record again, or
    be about to store that a group is over: that waits for other records, and other requests are served meanwhile.
    """

    name: str
    known: Place = FIRST
    granted: Place | None = None
    looks_again: bool = False
    ending: Ending | None = None
    claims: int = 2


Actor = Renamer | Failover | Broker
Step = tuple[str, World, Actor]


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Yield every step that the actor may take now."""
    if isinstance(actor, Renamer):
        if actor.chains:
            place = Place(actor.chains[0], world.place.life + 1)
            yield (
                f"m is in chain {place.chain}, life {place.life}",
                world._replace(place=place),
                Renamer(actor.chains[1:]),
            )
    elif isinstance(actor, Failover):
        if actor.times:
            other = "b" if world.coordinator == "a" else "a"
            after = world._replace(coordinator=other, term=world.term + 1)
            yield f"{other} coordinates", after, Failover(actor.times - 1)
    else:
        yield from _broker(actor, world, rules)


def _broker(actor: Broker, world: World, rules: Rules) -> Iterator[Step]:
    name = actor.name
    if actor.known != world.place:
        yield f"{name} hears of life {world.place.life}", world, actor._replace(known=world.place)
    if world.coordinator != name:
        # Its next step does not count any more: the client asks the other broker.
        if actor.granted or actor.looks_again or actor.ending:
            yield f"{name} is none any more", world, actor._replace(granted=None, looks_again=False, ending=None)
        return
    if actor.ending is not None:
        yield _end(actor, actor.ending, world, rules)
    if actor.granted is not None:
        yield from _deliver(actor, actor.granted, world, rules)
    elif actor.looks_again:
        yield _look_again(actor, world)
    elif actor.claims:
        yield from _claim(actor._replace(claims=actor.claims - 1), world, rules)


def _claim(actor: Broker, world: World, rules: Rules) -> Iterator[Step]:
    name, group = actor.name, world.group
    if group is None:
        made = world._replace(group=Group(world.made, *actor.known), made=world.made + 1)
        yield f"{name} makes the group, in chain {actor.known.chain}", made, actor
    elif rules.names_the_chain and group.chain != actor.known.chain:
        if rules.reads_again:
            yield f"{name} finds it in another chain", world, actor._replace(looks_again=True)
        else:
            yield f"{name} takes it for over", world, actor._replace(ending=Ending(group.number, world.term))
    elif _has_outlived(group, actor.known, rules):
        # That is so for ever, so it need not read again.
        yield (
            f"{name} finds it to be of an earlier life",
            world,
            actor._replace(ending=Ending(group.number, world.term)),
        )
    elif actor.known.life not in group.done and (rules.names_the_chain or not group.done):
        yield f"{name} grants the message of life {actor.known.life}", world, actor._replace(granted=actor.known)


def _has_outlived(group: Group, known: Place, rules: Rules) -> bool:
    """Whether the group is of an earlier life in the same chain. A broker that knows an older life cannot say."""
    if rules.knows_no_lives or not rules.ends_with_its_life:
        return False
    return group.chain == known.chain and group.life < known.life


def _look_again(actor: Broker, world: World) -> Step:
    """Read the record of `m`. If it names another chain than the group's, the group is over."""
    read, group = actor._replace(known=world.place, looks_again=False), world.group
    if group is not None and group.chain != world.place.chain:
        ending = Ending(group.number, world.term)
        return f"{actor.name} reads of life {world.place.life}: it is over", world, read._replace(ending=ending)
    return f"{actor.name} reads of life {world.place.life}", world, read


def _end(actor: Broker, ending: Ending, world: World, rules: Rules) -> Step:
    """Store that the group is over, if it is still that one, and its coordinator has not changed meanwhile.

    A check at the end uses what the broker knows: it knows of the life of every ack that it has answered.
    """
    after, group = actor._replace(ending=None), world.group
    if group is None or group.number != ending.number or world.term != ending.term:
        return f"{actor.name} has no such group any more", world, after
    is_that_chain = actor.known.chain == group.chain and not _has_outlived(group, actor.known, rules)
    if rules.looks_as_it_ends and is_that_chain:
        return f"{actor.name} finds that it is not over", world, after
    return f"{actor.name} ends the group", world._replace(group=None), after


def _deliver(actor: Broker, granted: Place, world: World, rules: Rules) -> Iterator[Step]:
    """Read the granted message, which the consumer acks. It may be gone by now: then it is not found.

    An ack is of the group if that is not over, as far as is known.
    """
    read_from = granted if rules.reads_the_named_chain else actor.known
    after, group = actor._replace(granted=None), world.group
    if group is None or group.chain != granted.chain:
        yield f"{actor.name} has no such group any more", world, after
    elif rules.names_the_chain and rules.reads_the_named_chain and actor.known.chain != group.chain:
        yield f"{actor.name} finds it in another chain", world, after._replace(looks_again=True)
    elif _has_outlived(group, actor.known, rules):
        yield f"{actor.name} finds it to be of an earlier life", world, after
    else:
        done = world._replace(
            group=group._replace(done=group.done | {granted.life}), acked=world.acked | {read_from.life}
        )
        done = done._replace(outlived=world.outlived or group.life < read_from.life)
        yield f"the message of life {read_from.life} is acked at {actor.name}", done, after


def complaint(world: World, actors: Sequence[Actor], rules: Rules) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    group, life = world.group, world.place.life
    if group is None:
        taken_for_done = False
    elif rules.names_the_chain:
        taken_for_done = group.chain == world.place.chain and life in group.done
    else:
        taken_for_done = bool(group.done)
    if taken_for_done and life not in world.acked:
        return f"the message of life {life} is passed by"
    if life in world.acked and not taken_for_done:
        return f"the ack in life {life} is forgotten"
    if world.outlived and not rules.knows_no_lives:
        return "a group of an earlier life has served a later one"
    return None


def explore(actors: Sequence[Actor], rules: Rules) -> tuple[int, set[World]]:
    """Explore all interleavings; returns the number of states, and the worlds at the ends. Raises `Violation`."""
    return explore_all(
        World(), actors, steps_of=partial(steps_of, rules=rules), complaint=partial(complaint, rules=rules)
    )
