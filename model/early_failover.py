"""Failover of a broker that refuses connections before its session ends (docs/design.md §8), as a small model.

The owner has up to two segments of one topic. One has no follower: only stored messages are acknowledged. The other has
one: messages are acknowledged once the follower holds them, or the store does. The leader looks at the owner, and so
does a witness. If both are refused again and again, and nothing is heard from the owner, the leader begins a transition
of the owner's segments. It may be wrong: the owner may live, go on storing, and reach its follower. So a segment is
sealed as ever: by its owner; else by its follower, which refuses the owner first; else by the store, at the end of the
log, if there is no follower, or if the sessions of both have ended.

Processes are killed, listeners close and open again, lines are cut, and puts land late. All interleavings of a few such
events are explored. After every step the promises are checked:

- what was acknowledged is in the log of a sealed segment, unless all brokers that held it were killed;
- a broker that is reached or heard, or that refuses for a moment only, keeps its segments;
- successors are with brokers that can be reached;
- a segment that can be sealed does not wait for one that cannot.

Requests that are sent again to a successor are found in the producer windows (docs/design.md §9), which are left out.
`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from model.explorer import explore_all

LOOKS = 2


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away.

    `fences`: a put takes effect only at the end of a log that is not sealed. `follower_refuses`: a follower refuses the
    owner before it looks at what it holds. `waits_for_sessions`: the store seals a segment with a follower only once
    the sessions of both have ended. `asks_a_witness`, `looks_again`, `listens`: the leader's view does not suffice, nor
    does one look, nor what it sees without what it hears. `leaves_out`: a segment whose brokers all refuse is left for
    the end of their sessions. `places_elsewhere`: the owner gets no successor.
    """

    fences: bool = True
    follower_refuses: bool = True
    waits_for_sessions: bool = True
    asks_a_witness: bool = True
    looks_again: bool = True
    listens: bool = True
    leaves_out: bool = True
    places_elsewhere: bool = True


class Broker(NamedTuple):
    """Whether the process lives, the viewers its address refuses, whether its own calls arrive, and its session.

    `blinks`: its address refuses all until the next look, and no longer. It does so once.
    """

    lives: bool = True
    refuses: frozenset[str] = frozenset()
    speaks: bool = True
    session: bool = True
    blinks: bool = False
    may_blink: bool = True

    def is_reached_by(self, viewer: str) -> bool:
        """Whether a connection is answered."""
        return self.lives and viewer not in self.refuses and not self.blinks


class Put(NamedTuple):
    """A file on its way to the store, or there: `landed` says whether it took its name; None is not yet."""

    base: int
    end: int
    landed: bool | None = None


class Segment(NamedTuple):
    """Messages are counted: `accepted` by the owner, `held` by the follower, `stored` as the owner knows, and so on."""

    followed: bool
    accepted: int = 0
    held: int = 0
    stored: int = 0
    acknowledged: int = 0
    put: Put | None = None
    stopped: bool = False
    refused: bool = False
    copied: int | None = None
    end: int = 0
    sealed: bool = False


class World(NamedTuple):
    """The owner, its follower, the segments, those that the transition seals, and the owner of their successors.

    `surprised`: the follower was lost after the transition began, which cannot be known before.
    """

    owner: Broker = Broker()
    follower: Broker = Broker()
    segments: tuple[Segment, ...] = ()
    sealing: frozenset[int] = frozenset()
    placed: tuple[tuple[int, str], ...] = ()
    surprised: bool = False
    broken: str = ""


class Owner(NamedTuple):
    """Accepts so many messages in each segment, copies, stores and acknowledges them."""

    messages: int


class Store(NamedTuple):
    """Makes puts take effect."""


class Leader(NamedTuple):
    """`refusals` in a row. `phase` is watching, sealing or done."""

    phase: str = "watching"
    refusals: int = 0


class Fate(NamedTuple):
    """The events that happen to brokers: so many more."""

    events: int


Actor = Owner | Store | Leader | Fate
Step = tuple[str, World, Actor]
EVERYBODY = frozenset(("leader", "witness"))


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Yield every step that the actor may take now."""
    match actor:
        case Owner():
            if world.owner.lives:
                for number, segment in enumerate(world.segments):
                    for what, after in _own(segment, world, actor.messages):
                        yield f"the owner {what} in {number}", _with(world, number, after), actor
        case Store():
            for number, segment in enumerate(world.segments):
                if segment.put is not None and segment.put.landed is None:
                    yield f"the put in {number} lands", _with(world, number, _land(segment, segment.put, rules)), actor
        case Fate():
            if actor.events:
                for what, after in _befall(world):
                    yield what, after, Fate(actor.events - 1)
            for what, after in _expire(world):
                yield what, after, actor
        case Leader(phase="watching"):
            yield from _watch(actor, world, rules)
        case Leader(phase="sealing"):
            yield from _seal(actor, world, rules)


def _with(world: World, number: int, segment: Segment) -> World:
    return world._replace(segments=(*world.segments[:number], segment, *world.segments[number + 1 :]))


# -- the owner and the store -------------------------------------------------------------------------------


def _own(segment: Segment, world: World, messages: int) -> Iterator[tuple[str, Segment]]:
    put = segment.put
    if put is not None and put.landed is not None:
        # Whether the file is its own: if not, it has lost the segment.
        acknowledged = max(segment.acknowledged, put.end)
        stored = segment._replace(put=None, stored=put.end, acknowledged=acknowledged)
        yield "learns of its put", stored if put.landed else segment._replace(put=None, stopped=True)
    if segment.stopped:
        return
    if segment.accepted < messages:
        yield "accepts", segment._replace(accepted=segment.accepted + 1)
    if put is None and segment.stored < segment.accepted:
        yield "puts", segment._replace(put=Put(segment.stored, segment.accepted))
    # The line between the two is another one than those that lead to the leader.
    if segment.followed and world.follower.lives and segment.held < segment.accepted:
        yield (
            ("is refused", segment._replace(stopped=True))
            if segment.refused
            else ("copies", segment._replace(held=segment.accepted))
        )
    if segment.acknowledged < segment.held:
        yield "acknowledges what its follower holds", segment._replace(acknowledged=segment.held)


def _land(segment: Segment, put: Put, rules: Rules) -> Segment:
    if not rules.fences:
        return segment._replace(put=put._replace(landed=True))
    free = not segment.sealed and segment.end == put.base
    return segment._replace(end=put.end if free else segment.end, put=put._replace(landed=free))


# -- the leader --------------------------------------------------------------------------------------------


def _watch(leader: Leader, world: World, rules: Rules) -> Iterator[Step]:
    owner = world.owner
    if not owner.session:
        sealing = frozenset(range(len(world.segments)))
        yield "the leader fails over after the session", world._replace(sealing=sealing), Leader("sealing")
        return
    seen = world._replace(owner=owner._replace(blinks=False))
    # A live broker whose calls arrive is heard between two looks.
    heard = rules.listens and owner.lives and owner.speaks
    witnessed = not rules.asks_a_witness or not owner.is_reached_by("witness")
    if heard or owner.is_reached_by("leader") or not witnessed:
        if leader.refusals or owner.blinks:
            yield "the owner is there", seen, Leader()
        return
    if leader.refusals + 1 < (LOOKS if rules.looks_again else 1):
        yield "the owner refuses", seen, Leader("watching", leader.refusals + 1)
        return
    sealing = frozenset(n for n, segment in enumerate(world.segments) if _can_be_sealed(segment, world, rules))
    if sealing:
        yield "the leader fails over early", _judged(seen, owner, sealing), Leader("sealing")


def _can_be_sealed(segment: Segment, world: World, rules: Rules) -> bool:
    """Whether it has no follower, or one that answers and can refuse the owner."""
    return not rules.leaves_out or not segment.followed or world.follower.is_reached_by("leader")


def _judged(world: World, owner: Broker, sealing: frozenset[int]) -> World:
    there = owner.lives and (owner.speaks or owner.refuses != EVERYBODY)
    return world._replace(sealing=sealing, broken="a broker that is there loses its segments" if there else "")


def _seal(leader: Leader, world: World, rules: Rules) -> Iterator[Step]:
    for number in sorted(world.sealing):
        if not (segment := world.segments[number]).sealed:
            for what, after in _seal_one(segment, world, rules):
                yield f"{what} in {number}", _with(world, number, after), leader
    if all(world.segments[number].sealed for number in world.sealing):
        to = "leader" if rules.places_elsewhere or not world.owner.session else "owner"
        placed = (*world.placed, *((number, to) for number in sorted(world.sealing)))
        yield "the successors open", world._replace(placed=placed, sealing=frozenset()), Leader("done")


def _seal_one(segment: Segment, world: World, rules: Rules) -> Iterator[tuple[str, Segment]]:
    owner, follower = world.owner, world.follower
    if owner.is_reached_by("leader") and not segment.stopped and segment.put is None and segment.end == segment.stored:
        accepted = segment.accepted
        sealed = segment._replace(end=accepted, stored=accepted, acknowledged=accepted, sealed=True, stopped=True)
        yield "the owner seals", sealed
    if segment.copied is not None:
        if follower.lives:
            yield "the follower seals", segment._replace(end=max(segment.end, segment.copied), sealed=True)
    elif segment.followed and follower.is_reached_by("leader"):
        refused = segment._replace(refused=rules.follower_refuses, copied=segment.held)
        yield "the follower takes over", refused
    if not segment.followed or _are_gone(owner, follower, rules):
        yield "the store seals", segment._replace(sealed=True)


def _are_gone(owner: Broker, follower: Broker, rules: Rules) -> bool:
    if rules.waits_for_sessions:
        return not owner.session and not follower.session
    return not owner.is_reached_by("leader") and not follower.is_reached_by("leader")


# -- what befalls them -------------------------------------------------------------------------------------


def _befall(world: World) -> Iterator[tuple[str, World]]:
    owner, follower = world.owner, world.follower
    if owner.lives:
        yield "the owner is killed", world._replace(owner=owner._replace(lives=False))
        yield "the owner refuses everybody", world._replace(owner=owner._replace(refuses=EVERYBODY))
        yield "the owner refuses the leader", world._replace(owner=owner._replace(refuses=frozenset(("leader",))))
        again = owner._replace(refuses=frozenset(), blinks=False, may_blink=False)
        yield "the owner answers again", world._replace(owner=again)
        if owner.may_blink and not owner.refuses:
            yield "the owner refuses for a moment", world._replace(owner=owner._replace(blinks=True, may_blink=False))
        yield "the owner's calls are lost", world._replace(owner=owner._replace(speaks=False))
    if follower.lives:
        lost = world._replace(surprised=bool(world.sealing))
        yield "the follower is killed", lost._replace(follower=follower._replace(lives=False))
        yield "the follower refuses", lost._replace(follower=follower._replace(refuses=EVERYBODY))


def _expire(world: World) -> Iterator[tuple[str, World]]:
    """End sessions of dead processes only: other ends are as before, and another matter."""
    if not world.owner.lives and world.owner.session:
        yield "the owner's session ends", world._replace(owner=world.owner._replace(session=False))
    if not world.follower.lives and world.follower.session:
        yield "the follower's session ends", world._replace(follower=world.follower._replace(session=False))


# -- promises ----------------------------------------------------------------------------------------------


def complaint(world: World, actors: Sequence[Actor]) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    if world.broken:
        return world.broken
    for segment in world.segments:
        all_killed = segment.followed and not world.owner.lives and not world.follower.lives
        if segment.sealed and segment.acknowledged > segment.end and not all_killed:
            return "an acknowledged message is not in the log"
    if any(to == "owner" for _, to in world.placed):
        return "a successor is with a broker that refuses"
    return None


def complaint_at_the_end(world: World, actors: Sequence[Actor]) -> str | None:
    """As `complaint`, when no actor can take a step."""
    waiting = [number for number in world.sealing if not world.segments[number].followed]
    if waiting and world.owner.session and not world.surprised:
        return "a segment waits for one that cannot be sealed"
    return None


def explore(followed: Sequence[bool], rules: Rules, *, messages: int, events: int) -> tuple[int, set[World]]:
    """Explore a topic of segments with a follower or without; returns the number of states and the last worlds."""
    world = World(segments=tuple(map(Segment, followed)))
    actors: list[Actor] = [Owner(messages), Store(), Leader(), Fate(events)]
    return explore_all(
        world,
        actors,
        steps_of=partial(steps_of, rules=rules),
        complaint=complaint,
        complaint_at_the_end=complaint_at_the_end,
    )
