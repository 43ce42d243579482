"""Restarts of a broker without a cluster (docs/design.md §8, "An incarnation"), as a small model.

Each process is frozen data and takes one step at a time. It takes an incarnation: that of the process before, if the
record says that this process has stopped; else a new one. Of two that change the record at the same moment one starts,
and the other does not. A segment belongs to an incarnation. When it is first used, a process that has the segment's
incarnation goes on with it; any other seals it and opens the next. A process may be killed anywhere, and two may run at
the same time. Its puts may land late, also after its end, or never; writes of the record may land twice. All
interleavings are explored. Each process publishes the same two requests again, as a producer without answers does.

Four more actors may be there. An older version of the broker knows nothing of the record, and takes a new incarnation.
A meddler copies the record, and puts the copy back, once, at any moments. A thief takes the last file of the newest
segment, once, while no process runs and the last one has stopped cleanly. A keeper does the upkeep of a segment,
whichever process owns it: its topic may never be used again, and its owner, taken for dead, may still write. It rolls
up files from the first one on, once, lets two halves of the grace period pass, and deletes the files that it rolled up.
The names are free then. A put that is late may create one of them again, and its file counts for nothing.

After every step the promises are checked:

- acknowledged requests are in the log, unless they were stolen;
- no request is in the log twice;
- a stolen request keeps its segment and offset: a reader that had it would miss another request there;
- no process loses its segment to a file of its own incarnation: it would have to seal the segment, as after a kill.
  The last one is not kept if an older record is put back. The others are: the names of files fence.

`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from model.explorer import explore_all

REQUESTS = (1, 2)
HALVES = 2


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away.

    `stops_idle`: the record says that a process has stopped only once nothing of it is under way. `compares`: the
    record is changed only as it was read. `renames`: the incarnation of a killed process is never taken. `looks`: a
    process that goes on with a segment reads which requests it has first. `tells_end`: the record of a stop contains
    where the log ends, and the next process begins no earlier.

    Beside a keeper: `proves`: a put counts by itself only within half a grace period of a proof that its name was not
    rolled up; later its process reads the segment. `lists`: for the first put of a segment that a process has opened,
    that proof is that it has created the topic, or the record and the names in the folder, not the record alone.
    `waits`: files that were rolled up stay for a grace period.
    """

    stops_idle: bool = True
    compares: bool = True
    renames: bool = True
    looks: bool = True
    tells_end: bool = True
    proves: bool = True
    lists: bool = True
    waits: bool = True


class Record(NamedTuple):
    """The incarnation that was taken last, whether its process has stopped, and the number of this version.

    `ends`: where segments ended at the last clean stop that knew of them, as (segment, offset).
    """

    incarnation: int = 0
    stopped: bool = False
    version: int = 0
    ends: tuple[tuple[int, int], ...] = ()


GONE = (0, 0)
NEVER = -9


class Segment(NamedTuple):
    """Its incarnation, the requests in its files (one each), and the process that put each.

    `rolled`: the same, for the first files, in one file that a keeper has written.
    """

    incarnation: int
    files: tuple[tuple[int, int], ...] = ()
    sealed: bool = False
    rolled: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        """The end of the log in the view of a reader of the names: a missing file at the end leaves no trace."""
        end = len(self.files)
        while end and self.files[end - 1] == GONE:
            end -= 1
        return max(end, len(self.rolled))

    @property
    def log(self) -> tuple[tuple[int, int], ...]:
        """The requests that readers find, by offset."""
        return (*self.rolled, *self.files[len(self.rolled) :])

    def has(self, name: int) -> bool:
        """Whether there is a file of that name now."""
        return name < len(self.files) and self.files[name] != GONE

    def with_file(self, name: int, file: tuple[int, int]) -> "Segment":
        """Return the segment with that file; free names before it are a hole."""
        files = [*self.files, *[GONE] * (name + 1 - len(self.files))]
        files[name] = file
        return self._replace(files=tuple(files))


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
    """The store's objects and those on their way, the acknowledged requests, and the promise that was broken.

    `halves`: the halves of the grace period that have passed since the roll-up.
    """

    record: Record = Record()
    segments: tuple[Segment, ...] = ()
    puts: frozenset[Put] = frozenset()
    writes: frozenset[Write] = frozenset()
    acknowledged: frozenset[int] = frozenset()
    broken: str = ""
    halves: int = 0


class Process(NamedTuple):
    """A broker process: `phase` is off, taking, taken, ready, putting or over.

    `knows`: the version knows of the record. `proven`: when it was last proven that the name of its next file was not
    rolled up.
    """

    number: int
    knows: bool = True
    phase: str = "off"
    write: Write | None = None
    incarnation: int = 0
    segment: int = -1
    end: int = 0
    known: frozenset[int] = frozenset()
    put: Put | None = None
    proven: int = NEVER

    @property
    def runs(self) -> bool:
        """Whether it has started and not ended."""
        return self.phase not in ("off", "over")

    @property
    def ended(self) -> "Process":
        """Return the process after its end. Its knowledge counts no more, so that all its ends are one state."""
        return Process(self.number, self.knows, "over")


class Store(NamedTuple):
    """Makes puts and writes on their way take effect."""


class Meddler(NamedTuple):
    """Copies the record, and puts the copy back."""

    copy: Record | None = None
    done: bool = False


class Thief(NamedTuple):
    """Takes the last file of the newest segment: that request, which was in that segment at that offset."""

    request: int = 0
    segment: int = -1
    name: int = -1


class Keeper(NamedTuple):
    """Has rolled up the first files of that segment, and has deleted them."""

    segment: int = -1
    done: bool = False


Actor = Process | Store | Meddler | Thief | Keeper
Step = tuple[str, World, Actor]


def steps_of(actor: Actor, world: World, rules: Rules) -> Iterator[Step]:
    """Yield every step that the actor may take now."""
    if isinstance(actor, Store):
        yield from _store(actor, world, rules)
    elif isinstance(actor, Meddler):
        yield from _meddle(actor, world)
    elif isinstance(actor, Thief):
        yield from _steal(actor, world)
    elif isinstance(actor, Keeper):
        yield from _keep(actor, world, rules)
    elif actor.phase != "over":
        who = f"process {actor.number}"
        if actor.phase != "off":
            yield f"{who} is killed", world, actor.ended
        steps = {"off": _start, "taking": _take, "taken": _taken, "ready": _ready, "putting": _putting}[actor.phase]
        for what, after, changed in steps(actor, world, rules):
            yield f"{who} {what}", after, changed


def _store(store: Store, world: World, rules: Rules) -> Iterator[Step]:
    for put in world.puts:
        landed = world._replace(puts=world.puts - {put})
        segment = world.segments[put.segment]
        if not segment.sealed and not segment.has(put.name):
            with_file = segment.with_file(put.name, (put.request, put.process))
            landed = landed._replace(segments=_with(world, put.segment, with_file))
        yield f"{put} lands", landed, store
    for write in world.writes:
        # The write stays under way: a client may have sent it twice.
        if world.record != write.record and (not rules.compares or world.record.version == write.replaces):
            yield f"{write} lands", world._replace(record=write.record), store


def _meddle(meddler: Meddler, world: World) -> Iterator[Step]:
    if meddler.copy is None:
        if world.record.version:
            yield "the record is copied", world, Meddler(world.record)
    elif not meddler.done and world.record != meddler.copy:
        yield "the copy is put back", world._replace(record=meddler.copy), meddler._replace(done=True)


def _steal(thief: Thief, world: World) -> Iterator[Step]:
    """Steal a stored file, and none on its way: one fault at a time."""
    if thief.request or not world.segments or not world.record.stopped or world.puts:
        return
    newest = world.segments[-1]
    if newest.files and not newest.sealed:
        request, _ = newest.files[-1]
        taken = newest._replace(files=(*newest.files[:-1], GONE))
        number = len(world.segments) - 1
        without = world._replace(segments=_with(world, number, taken))
        yield f"request {request} is stolen", without, Thief(request, number, len(newest.files) - 1)


def _keep(keeper: Keeper, world: World, rules: Rules) -> Iterator[Step]:
    if keeper.done:
        return
    if keeper.segment < 0:
        for number, segment in enumerate(world.segments):
            for end in range(1, len(segment.files) + 1):
                rolled = segment._replace(rolled=segment.files[:end])
                after = world._replace(segments=_with(world, number, rolled))
                yield f"the first {end} files of segment {number} are rolled up", after, Keeper(number)
        return
    if world.halves < HALVES:
        yield "half a grace period passes", world._replace(halves=world.halves + 1), keeper
    if world.halves == HALVES or not rules.waits:
        segment = world.segments[keeper.segment]
        count = len(segment.rolled)
        freed = segment._replace(files=(*[GONE] * count, *segment.files[count:]))
        yield "they are deleted", world._replace(segments=_with(world, keeper.segment, freed)), Keeper(done=True)


def _with(world: World, number: int, segment: Segment) -> tuple[Segment, ...]:
    return (*world.segments[:number], segment, *world.segments[number + 1 :])


def _start(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    if not process.knows:
        fresh = process._replace(phase="taking", incarnation=10 + process.number)
        yield "of an older version starts", world, fresh
        return
    seen = world.record
    takes = seen.version > 0 and (seen.stopped or not rules.renames)
    incarnation = seen.incarnation if takes else 10 + process.number
    record = Record(incarnation, False, seen.version * 10 + process.number, seen.ends)
    write = Write(process.number, seen.version, record)
    yield (
        f"takes incarnation {incarnation}",
        world._replace(writes=world.writes | {write}),
        process._replace(phase="taking", write=write, incarnation=incarnation),
    )


def _take(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    """Start if its write has taken effect. If another one has, it does not start."""
    if process.write is None or world.record == process.write.record:
        yield "has started", world, process._replace(phase="taken")
    elif rules.compares and world.record.version != process.write.replaces:
        yield "does not start", world, process.ended


def _taken(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    """Settle the segment when the topic is first used, which may be much later, or never."""
    yield from _settle(process, world, rules)
    yield from _stop(process, world)


def _settle(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    number = len(world.segments) - 1
    stored = frozenset(_stored(world))
    told = dict(process.write.record.ends) if process.write is not None and rules.tells_end else {}
    newest = world.segments[number] if number >= 0 else None
    if newest is not None and newest.incarnation == process.incarnation and not newest.sealed:
        known = stored if rules.looks else frozenset[int]()
        end = max(newest.end, told.get(number, 0))
        ready = process._replace(phase="ready", segment=number, end=end, known=known, proven=world.halves)
        yield "goes on", world, ready
        return
    sealed = _with(world, number, newest._replace(sealed=True)) if newest is not None else ()
    opened = (*sealed, Segment(process.incarnation))
    # To have created the topic is a proof: nothing of it was there.
    proven = world.halves if newest is None else NEVER
    ready = process._replace(phase="ready", segment=number + 1, known=stored, proven=proven)
    yield "seals, and opens the next", world._replace(segments=opened), ready


def _ready(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    for request in REQUESTS:
        if request in process.known:
            if request not in world.acknowledged:
                acknowledged = world._replace(acknowledged=world.acknowledged | {request})
                yield f"answers {request} again", acknowledged, process
        else:
            put = Put(process.number, process.segment, process.end, request)
            sent = world._replace(puts=world.puts | {put})
            yield f"puts {request}", sent, process._replace(phase="putting", put=put)
    yield from _stop(process, world)


def _putting(process: Process, world: World, rules: Rules) -> Iterator[Step]:
    put = process.put
    assert put is not None
    segment = world.segments[put.segment]
    is_fresh = world.halves - process.proven <= 1
    if put.name == 0 and not is_fresh and not segment.sealed and not (rules.lists and _others(segment)):
        yield "sees that its first name is new", world, process._replace(proven=world.halves)
    if put not in world.puts:
        landed = (put.request, put.process) in (*segment.files[put.name :][:1], *segment.rolled[put.name :][:1])
        counts = is_fresh or not rules.proves or (not segment.sealed and put.name >= len(segment.rolled))
        if landed and counts:
            known = process.known | {put.request}
            proven = process.proven if is_fresh else world.halves
            ready = process._replace(phase="ready", put=None, end=process.end + 1, known=known, proven=proven)
            acknowledged = world._replace(acknowledged=world.acknowledged | {put.request})
            yield f"acknowledges {put.request}", acknowledged, ready
        else:
            own = not landed and segment.has(put.name) and segment.incarnation == process.incarnation
            broken = LOST_TO_ITSELF if own else world.broken
            yield "has lost the segment", world._replace(broken=broken), process.ended
    if not rules.stops_idle:
        yield from _stop(process, world)


def _others(segment: Segment) -> bool:
    """Whether the folder has names beside the first: then that one may have been there before."""
    return bool(segment.rolled) or any(segment.has(name) for name in range(1, len(segment.files)))


def _stop(process: Process, world: World) -> Iterator[Step]:
    if process.write is None:
        yield "stops, and says so nowhere", world, process.ended
        return
    taken = process.write.record
    ends = dict(taken.ends) | ({process.segment: process.end} if process.segment >= 0 else {})
    record = Record(process.incarnation, True, taken.version * 10 + 9, tuple(sorted(ends.items())))
    stopped = world._replace(writes=world.writes | {Write(process.number, taken.version, record)})
    yield "stops", stopped, process.ended


# -- promises ----------------------------------------------------------------------------------------------


NOTHING = World()
LOST_TO_ITSELF = "a process lost its segment to its own incarnation"


def _stored(world: World) -> list[int]:
    """Return the requests that readers find."""
    return [request for segment in world.segments for request, _ in segment.log if request]


def complaint(world: World, actors: Sequence[Actor]) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    stored = _stored(world)
    thief = next((each for each in actors if isinstance(each, Thief) and each.request), Thief())
    if world.broken and not any(isinstance(each, Meddler) and each.done for each in actors):
        return world.broken
    if not world.acknowledged <= {*stored, thief.request}:
        return "an acknowledged request is not in the log"
    if len(set(stored)) < len(stored):
        return "a request is in the log twice"
    if thief.request and world.segments[thief.segment].has(thief.name):
        return "another request has the offset of the stolen one"
    return None


def explore(actors: Sequence[Actor], rules: Rules, begin: World = NOTHING) -> tuple[int, set[World]]:
    """Explore all interleavings from there on; returns the number of states, and the worlds at the ends.

    Raises `Violation`.
    """
    return explore_all(
        begin, [*actors, Store()], steps_of=partial(steps_of, rules=rules), complaint=complaint, waits=_waits
    )


def _waits(actor: Actor, actors: Sequence[Actor]) -> bool:
    """Whether the thief has to wait: it comes while no process runs."""
    return isinstance(actor, Thief) and any(isinstance(each, Process) and each.runs for each in actors)
