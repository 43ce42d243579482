"""Checkpoints of the log of consumer groups (docs/design.md §12), as a small model.

The groups `l` and `r` have their records in a segment of `__groups`, which is split, merged and failed over: the owner
of a successor reads the records before it. A record is appended, and acknowledged in a step of its own. A checkpoint is
a snapshot of each group, one after the other, and then a record with the position of the first of them. The next owner
begins there, and looks at no segment before: so it cuts the chain. Upkeep deletes records that no reader needs by that.
All interleavings are explored. At every take-over:

- the new owner knows everything acknowledged of each group. Records appended and not acknowledged count, or do not.

`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from model.explorer import explore_all


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away."""

    gate: bool = True
    """No group is created while a checkpoint is written, and none is begun while one is created."""
    at_rest: bool = True
    """No snapshot of a group is written while another record of it is on its way."""
    names_the_first: bool = True
    """A checkpoint has the position of the first snapshot, and not its own."""
    asks_all_before: bool = True
    """An owner that finds no checkpoint in a segment reads all segments before it, and not one of them."""
    waits_for_all: bool = True
    """A segment goes when all its successors have a checkpoint, and not one of them."""


class Rec(NamedTuple):
    """A record: `create` or `add` of a group, its `snap` with the sum, or a `check` of no group."""

    kind: str
    group: str = ""
    number: int = 0


class Writing(NamedTuple):
    """A checkpoint being written: the groups with snapshots still to come, and the positions of the others."""

    left: tuple[str, ...]
    offsets: tuple[int, ...] = ()


Known = tuple[tuple[str, int], ...]
"""How many records of each group count."""


class Segment(NamedTuple):
    """A segment without its deleted records below `start`. Its owner, while it is open, has this in memory.

    `known` is None until it has read the log. `pending` is appended, and not acknowledged.
    """

    id: int
    groups: frozenset[str]
    before: tuple[int, ...] = ()
    records: tuple[Rec, ...] = ()
    start: int = 0
    is_open: bool = True
    known: Known | None = None
    pending: Rec | None = None
    writing: Writing | None = None
    floor: int = 0


class World(NamedTuple):
    """All segments that are there, how many there were, the acknowledged records, and what went wrong."""

    segments: tuple[Segment, ...]
    next_id: int
    acknowledged: Known = ()
    wrong: str = ""


class Worker(NamedTuple):
    """Adds so many records to existing groups."""

    times: int = 2


class Creator(NamedTuple):
    """Creates these groups."""

    groups: tuple[str, ...] = ()


class Checkpointer(NamedTuple):
    """Writes so many checkpoints."""

    times: int = 1


class Reshaper(NamedTuple):
    """Changes the open segments: `split`, `merge`, or `fail over`, one after the other."""

    steps: tuple[str, ...] = ()


class Upkeep(NamedTuple):
    """Deletes records that no reader needs."""


Actor = Worker | Creator | Checkpointer | Reshaper | Upkeep
Step = tuple[str, World, Actor]
BOTH = frozenset("lr")


def begun(*groups: str) -> World:
    """Return one segment, in which these groups were created and are known."""
    known = tuple((group, 1) for group in groups)
    records = tuple(Rec("create", group) for group in groups)
    return World((Segment(0, BOTH, records=records, known=known),), 1, known)


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Yield every step that the actor may take now."""
    owners = [each for each in world.segments if each.is_open and each.known is not None]
    if isinstance(actor, Worker):
        yield from _work(actor, world, owners, rules)
    elif isinstance(actor, Creator):
        if actor.groups:
            group, left = actor.groups[0], Creator(actor.groups[1:])
            for owner in owners:
                if group in owner.groups and not owner.pending and not (rules.gate and owner.writing):
                    yield f"{group} is created", _append(world, owner, Rec("create", group), pending=True), left
    elif isinstance(actor, Checkpointer):
        yield from _checkpoint(actor, world, owners, rules)
    elif isinstance(actor, Reshaper):
        if actor.steps and (after := _reshaped(world, actor.steps[0])) is not None:
            yield actor.steps[0], after, Reshaper(actor.steps[1:])
    else:
        yield from ((what, after, actor) for what, after in _upkeep(world, rules))


def _work(actor: Worker, world: World, owners: Sequence[Segment], rules: Rules) -> Iterator[Step]:
    for segment in world.segments:
        if segment.is_open and segment.known is None:
            yield f"the owner of {segment.id} takes over", taken_over(world, segment, rules), actor
    for owner in owners:
        if owner.pending is not None:
            yield f"{owner.pending.kind} {owner.pending.group} is acknowledged", _acknowledged(world, owner), actor
        elif actor.times:
            for group, _ in owner.known or ():
                yield f"add {group}", _append(world, owner, Rec("add", group), pending=True), Worker(actor.times - 1)


def _checkpoint(actor: Checkpointer, world: World, owners: Sequence[Segment], rules: Rules) -> Iterator[Step]:
    for owner in owners:
        is_creating = owner.pending is not None and owner.pending.kind == "create"
        if owner.writing is None:
            if actor.times and not (rules.gate and is_creating):
                begun_ = owner._replace(writing=Writing(tuple(group for group, _ in owner.known or ())))
                yield f"a checkpoint of {owner.id} begins", _with(world, begun_), Checkpointer(actor.times - 1)
        elif owner.writing.left:
            group, *left = owner.writing.left
            if not (rules.at_rest and owner.pending is not None and owner.pending.group == group):
                offsets = (*owner.writing.offsets, len(owner.records))
                written = owner._replace(writing=Writing(tuple(left), offsets))
                snapshot = Rec("snap", group, dict(owner.known or ())[group])
                yield f"a snapshot of {group}", _append(world, written, snapshot), actor
        else:
            own = len(owner.records)
            first = min(owner.writing.offsets, default=own) if rules.names_the_first else own
            done = owner._replace(writing=None, floor=first)
            yield f"the checkpoint of {owner.id} is there", _append(world, done, Rec("check", number=first)), actor


def _upkeep(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    for segment in world.segments:
        if segment.is_open and segment.floor > segment.start:
            yield f"{segment.id} is deleted up to {segment.floor}", _with(world, segment._replace(start=segment.floor))
        if not segment.is_open:
            successors = [each for each in world.segments if segment.id in each.before]
            have = [each.start > 0 for each in successors]
            if all(have) if rules.waits_for_all else any(have):
                left = tuple(each for each in world.segments if each is not segment)
                yield f"{segment.id} is deleted", world._replace(segments=left)


def _reshaped(world: World, step: str) -> World | None:
    opened = [each for each in world.segments if each.is_open]
    if step == "split":
        found = next((each for each in opened if each.groups == BOTH), None)
        return None if found is None else _sealed(world, [found], [frozenset("l"), frozenset("r")])
    if step == "merge":
        return _sealed(world, opened, [BOTH]) if len(opened) == 2 else None
    return _sealed(world, opened[:1], [opened[0].groups])


def _sealed(world: World, segments: Sequence[Segment], ranges: Sequence[frozenset[str]]) -> World:
    """Seal these; their owners know nothing any more. Records that they have appended stay."""
    over = [each._replace(is_open=False, known=None, pending=None, writing=None) for each in segments]
    after, before = world, tuple(each.id for each in segments)
    for each in over:
        after = _with(after, each)
    opened = tuple(Segment(world.next_id + number, each, before) for number, each in enumerate(ranges))
    return after._replace(segments=(*after.segments, *opened), next_id=world.next_id + len(opened))


# -- what is known -----------------------------------------------------------------------------------------------


def taken_over(world: World, segment: Segment, rules: Rules) -> World:
    """Let its owner read the log. All records found count from now on, also those without an answer."""
    found = _read(world, segment, rules)
    acknowledged = dict(world.acknowledged)
    for group in sorted(segment.groups):
        if found.get(group, 0) < acknowledged.get(group, 0):
            lost = f"of {group} {acknowledged[group]} are acknowledged, and {found.get(group, 0)} known"
            return world._replace(wrong=lost)
    acknowledged |= found
    known = segment._replace(known=tuple(sorted(found.items())))
    return _with(world, known)._replace(acknowledged=tuple(sorted(acknowledged.items())))


def _read(world: World, own: Segment, rules: Rules) -> dict[str, int]:
    by_id = {each.id: each for each in world.segments}
    begin, waiting = dict[int, int](), [own]
    while waiting:
        segment = waiting.pop()
        checks = [each for each in segment.records[segment.start :] if each.kind == "check"]
        begin[segment.id] = checks[-1].number if checks else segment.start
        before = [by_id[each] for each in segment.before if each in by_id and each not in begin]
        if not checks:
            waiting += before if rules.asks_all_before else before[:1]
    counts: dict[str, int] = {}
    for segment_id in sorted(begin):
        for record in by_id[segment_id].records[max(begin[segment_id], by_id[segment_id].start) :]:
            if record.group in own.groups:
                _add(counts, record)
    return counts


def _add(counts: dict[str, int], record: Rec) -> None:
    if record.kind == "create":
        counts[record.group] = 1
    elif record.kind == "snap":
        counts[record.group] = record.number
    elif record.group in counts:
        # Reading begins at the first snapshot: a group's records before its own are in that.
        counts[record.group] += 1


def _acknowledged(world: World, owner: Segment) -> World:
    assert owner.pending is not None
    known = _added(dict(owner.known or ()), owner.pending)
    after = _with(world, owner._replace(known=known, pending=None))
    return after._replace(acknowledged=_added(dict(world.acknowledged), owner.pending))


def _added(counts: Mapping[str, int], record: Rec) -> Known:
    found = dict(counts)
    _add(found, record)
    return tuple(sorted(found.items()))


def _append(world: World, owner: Segment, record: Rec, *, pending: bool = False) -> World:
    after = owner._replace(records=(*owner.records, record))
    return _with(world, after._replace(pending=record) if pending else after)


def _with(world: World, changed: Segment) -> World:
    segments = tuple(changed if each.id == changed.id else each for each in world.segments)
    return world._replace(segments=segments)


def complaint(world: World, actors: Sequence[Actor]) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    return world.wrong or None


def explore(first: World, actors: Sequence[Actor], rules: Rules) -> tuple[int, set[World]]:
    """Explore all interleavings; returns the number of states, and the worlds at the ends. Raises `Violation`."""
    return explore_all(first, actors, steps_of=partial(steps_of, rules=rules), complaint=complaint)
