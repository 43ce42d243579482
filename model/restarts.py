"""Restarts of a broker without a cluster (docs/design.md §8, "An incarnation"), as a small model.

Each process is frozen data and takes one step at a time. It takes an incarnation: the one of the process before, if the
record says that this one has stopped; else a new one. A segment belongs to an incarnation. A process that has the
segment's incarnation goes on with it; any other seals it and opens the next. It may be killed anywhere, and two may
start at the same time. Its puts may land late, also after its end, or never; writes of the record may land twice. All
interleavings are explored. Each process publishes the same two requests again, as a producer without answers does.
After every step the promises are checked:

- what was acknowledged is in the log;
- no request is in the log twice;
- no process loses its segment to a file of its own incarnation: it would have to seal the segment, as after a kill.

`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from model.explorer import explore_all

REQUESTS = (1, 2)


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away.

    `stops_idle`: the record says that a process has stopped only once nothing of it is under way. `compares`: the
    record is changed only as it was read. `renames`: the incarnation of a process that was killed is never taken.
    `looks`: a process that goes on with a segment reads which requests it has first.
    """

    stops_idle: bool = True
    compares: bool = True
    renames: bool = True
    looks: bool = True


class Record(NamedTuple):
    """Which incarnation was taken last, whether its process has stopped, and the number of this version."""

    incarnation: int = 0
    stopped: bool = False
    version: int = 0


class Segment(NamedTuple):
    """Its incarnation, the requests in its files (one each), and by which process each was put."""

    incarnation: int
    files: tuple[tuple[int, int], ...] = ()
    sealed: bool = False


class Put(NamedTuple):
    """A file on its way to the store."""

    process: int
    segment: int
    name: int
    request: int


class Write(NamedTuple):
    """A new version of the record on its way, and the version that it replaces."""

    process: int
    replaces: int
    record: Record


class World(NamedTuple):
    """What is on the store and on its way there, which requests were acknowledged, and the promise that was broken."""

    record: Record = Record()
    segments: tuple[Segment, ...] = ()
    puts: frozenset[Put] = frozenset()
    writes: frozenset[Write] = frozenset()
    acknowledged: frozenset[int] = frozenset()
    broken: str = ""


class Process(NamedTuple):
    """A broker process: `phase` is off, taking, ready, putting or over."""

    number: int
    phase: str = "off"
    write: Write | None = None
    incarnation: int = 0
    segment: int = -1
    end: int = 0
    known: frozenset[int] = frozenset()
    put: Put | None = None


class Store(NamedTuple):
    """Has what is on its way take effect."""


Actor = Process | Store
Step = tuple[str, World, Actor]


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Every step that the actor may take now."""
    if isinstance(actor, Store):
        yield from _store(actor, world, rules)
    elif actor.phase != "over":
        who = f"process {actor.number}"
        if actor.phase != "off":
            yield f"{who} is killed", world, actor._replace(phase="over")
        steps = {"off": _start, "taking": _take, "ready": _ready, "putting": _putting}[actor.phase]
        for what, after, changed in steps(actor, world, rules):
            yield f"{who} {what}", after, changed


def _store(store: Store, world: World, rules: Rules) -> Iterator[Step]:
    for put in world.puts:
        landed = world._replace(puts=world.puts - {put})
        segment = world.segments[put.segment]
        if not segment.sealed and put.name == len(segment.files):
            files = (*segment.files, (put.request, put.process))
            landed = landed._replace(segments=_with(world, put.segment, segment._replace(files=files)))
        yield f"{put} lands", landed, store
    for write in world.writes:
        # It stays under way: a client may have sent it twice.
        if world.record != write.record and (not rules.compares or world.record.version == write.replaces):
            yield f"{write} lands", world._replace(record=write.record), store


def _with(world: World, number: int, segment: Segment) -> tuple[Segment, ...]:
    return (*world.segments[:number], segment, *world.segments[number + 1 :])


def _start(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    seen = world.record
    takes = seen.version > 0 and (seen.stopped or not rules.renames)
    incarnation = seen.incarnation if takes else 10 + process.number
    record = Record(incarnation, False, seen.version * 10 + process.number)
    write = Write(process.number, seen.version, record)
    yield (
        f"takes incarnation {incarnation}",
        world._replace(writes=world.writes | {write}),
        process._replace(phase="taking", write=write, incarnation=incarnation),
    )


def _take(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    """Its write has taken effect, or another one has: then it needs a new incarnation."""
    assert process.write is not None
    if world.record == process.write.record:
        yield from _settle(process, world, rules)
    elif rules.compares and world.record.version != process.write.replaces:
        yield from _settle(process._replace(incarnation=20 + process.number, write=None), world, rules)


def _settle(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    number = len(world.segments) - 1
    stored = frozenset(request for segment in world.segments for request, _ in segment.files)
    if number >= 0 and world.segments[number].incarnation == process.incarnation and not world.segments[number].sealed:
        known = stored if rules.looks else frozenset[int]()
        end = len(world.segments[number].files)
        yield "goes on", world, process._replace(phase="ready", segment=number, end=end, known=known)
        return
    sealed = _with(world, number, world.segments[number]._replace(sealed=True)) if number >= 0 else ()
    opened = (*sealed, Segment(process.incarnation))
    ready = process._replace(phase="ready", segment=number + 1, known=stored)
    yield "seals, and opens the next", world._replace(segments=opened), ready


def _ready(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    for request in REQUESTS:
        if request in process.known:
            if request not in world.acknowledged:
                yield f"answers {request} again", _acknowledge(world, request), process
        else:
            put = Put(process.number, process.segment, process.end, request)
            sent = world._replace(puts=world.puts | {put})
            yield f"puts {request}", sent, process._replace(phase="putting", put=put)
    yield from _stop(process, world)


def _putting(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    put = process.put
    assert put is not None
    if put not in world.puts:
        files = world.segments[put.segment].files
        if put.name < len(files) and files[put.name] == (put.request, put.process):
            known = process.known | {put.request}
            ready = process._replace(phase="ready", put=None, end=process.end + 1, known=known)
            yield f"acknowledges {put.request}", _acknowledge(world, put.request), ready
        else:
            own = put.name < len(files) and world.segments[put.segment].incarnation == process.incarnation
            broken = "a process lost its segment to its own incarnation" if own else world.broken
            yield "has lost the segment", world._replace(broken=broken), process._replace(phase="over")
    if not rules.stops_idle:
        yield from _stop(process, world)


def _stop(process: Process, world: World) -> Iterator[Step]:
    if process.write is None:
        return  # another process took the record: it says nothing of this one
    taken = process.write.record
    record = Record(process.incarnation, True, taken.version * 10 + 9)
    stopped = world._replace(writes=world.writes | {Write(process.number, taken.version, record)})
    yield "stops", stopped, process._replace(phase="over")


def _acknowledge(world: World, request: int) -> World:
    return world._replace(acknowledged=world.acknowledged | {request})


# -- promises ----------------------------------------------------------------------------------------------


def complaint(world: World, actors: Sequence[Actor]) -> str | None:
    """The promise that is broken now; None if all are kept."""
    stored = [request for segment in world.segments for request, _ in segment.files]
    if world.broken:
        return world.broken
    if not world.acknowledged <= set(stored):
        return "an acknowledged request is not in the log"
    if len(set(stored)) < len(stored):
        return "a request is in the log twice"
    return None


def explore(processes: int, rules: Rules) -> tuple[int, set[World]]:
    """Explore all interleavings; returns the number of states, and the worlds at the ends. Raises `Violation`."""
    actors: list[Actor] = [Process(number) for number in range(1, processes + 1)]
    return explore_all(World(), [*actors, Store()], steps_of=partial(steps_of, rules=rules), complaint=complaint)
