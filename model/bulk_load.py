"""The protocol of bulk loads (docs/design.md §10a) as a small model, for which every interleaving is checked.

Each actor is frozen data and takes one step at a time: one read or one write of the store, because topic.json and each
file change atomically. A stopped actor takes no more steps, and a paused actor takes them later, so both cases are
among the interleavings. A repeated request is a second actor. After every step `complaints` checks the invariants: what
a broker's reader would return at that moment, and all answers so far.

`Rules` are the protocol's safeguards: without any one of them, the model must find a violation. Two things are tested
elsewhere: how owners write and race for seals (`test_segment_log.py`), and the content of a file
(`filer/bulk_load/load_check.py`).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

SLOTS = 2
IDS_APART = 2
"""How far reserved ids lie above all others: so near that two transitions reach them."""


@dataclass(frozen=True)
class Rules:
    """The safeguards of the protocol. A test can switch each one off."""

    seals_what_is_open: bool = True
    seals_the_load: bool = True
    compares_seals: bool = True
    compares_and_swaps: bool = True
    looks_again_at_files: bool = True
    adopts_what_is_reserved: bool = True
    refuses_what_is_overtaken: bool = True
    opens_above_the_load: bool = True
    passes_by_reserved_ids: bool = True
    keeps_ids_given_up: bool = True
    spares_what_is_adopted: bool = True
    sweeps_by_the_record: bool = True
    looks_before_refusing: bool = True
    windows_go_through_loads: bool = True


class Message(NamedTuple):
    """The n-th message of a publisher or of a load; its key has that slot."""

    by: str
    number: int
    slot: int


class Position(NamedTuple):
    """Where a message is stored."""

    segment: int
    offset: int


Known = frozenset[tuple[Message, Position]]


class File(NamedTuple):
    """The rows of a file; a seal also has the requests that its log knows."""

    rows: tuple[Message, ...]
    writer: str
    sealed: bool = False
    known: Known = frozenset()


class Name(NamedTuple):
    """The name of a file: its segment, its first offset and, for a roll-up, its end."""

    segment: int
    base: int
    end: int = -1


Files = tuple[tuple[Name, File], ...]


class Segment(NamedTuple):
    """`end` is -1 while it is open."""

    id: int
    start: int
    stop: int
    predecessors: tuple[int, ...] = ()
    end: int = -1
    load: str = ""


class Load(NamedTuple):
    """`starts` are the first slots of its segments; `ends` and `version` are known once it is adopted."""

    id: str
    first: int
    starts: tuple[int, ...]
    given_up: bool = False
    ends: tuple[int, ...] = ()
    version: int = 0

    @property
    def ids(self) -> range:
        return range(self.first, self.first + len(self.starts))

    @property
    def reserved(self) -> bool:
        return not self.given_up and not self.version


class Transition(NamedTuple):
    """Seals these segments, adopts those, opens the others."""

    seal: tuple[int, ...]
    opened: tuple[Segment, ...]
    adopt: tuple[Segment, ...] = ()


class Topic(NamedTuple):
    """topic.json; the files of `removed` segments go a grace period later."""

    version: int = 1
    next_id: int = 1
    segments: tuple[Segment, ...] = (Segment(0, 0, SLOTS),)
    loads: tuple[Load, ...] = ()
    transition: Transition | None = None
    removed: frozenset[int] = frozenset()

    @property
    def open(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.end < 0]

    def load(self, load_id: str) -> Load | None:
        return next((load for load in self.loads if load.id == load_id and not load.given_up), None)

    def adopts(self, load: Load) -> bool:
        return self.transition is not None and any(each.id in load.ids for each in self.transition.adopt)


class Told(NamedTuple):
    """The answers that clients got, and when: none of them may ever turn out wrong."""

    stored: Known = frozenset()
    committed: frozenset[Load] = frozenset()
    refused_though_adopted: frozenset[str] = frozenset()
    before: frozenset[tuple[str, Message]] = frozenset()
    """Messages acknowledged when the load's commit was first requested."""
    asked: frozenset[str] = frozenset()
    after: frozenset[tuple[str, Message]] = frozenset()
    """Messages first sent after the load's commit was answered."""
    uses: frozenset[tuple[int, int]] = frozenset({(0, 0)})
    """Ids, and the version of topic.json that assigned them."""


class State(NamedTuple):
    """The whole state. An actor's newest state has the index in `actors` that the actor began with."""

    topic: Topic
    files: Files
    told: Told
    actors: tuple[Any, ...]


class Step(NamedTuple):
    """The next step of an actor: its state after the step, and what the step changes."""

    does: str
    actor: Any
    topic: Topic | None = None
    files: Files | None = None
    told: Told | None = None


# -- the store ---------------------------------------------------------------------------------------------------------


def created(files: Files, name: Name, file: File) -> Files | None:
    """Return the files with that file; None if the name exists."""
    if any(each == name for each, _ in files):
        return None
    return tuple(sorted((*files, (name, file))))


def without(files: Files, segments: Iterable[int]) -> Files:
    return tuple(each for each in files if each[0].segment not in segments)


def of_segment(files: Files, segment: int) -> dict[Name, File]:
    return {name: file for name, file in files if name.segment == segment}


class Log(NamedTuple):
    """What a broker reads of a segment."""

    rows: tuple[Message, ...]
    seal: File | None


@lru_cache(1 << 16)
def log_of(files: Files, segment: int) -> Log:
    """Return the log: follows the files up to the seal, or to the last file."""
    mine, rows = of_segment(files, segment), list[Message]()
    while True:
        at = len(rows)
        rolled = [n for n in mine if n.base <= at < n.end]
        name = max(rolled, key=lambda n: n.end) if rolled else Name(segment, at)
        if (file := mine.get(name)) is None:
            return Log(tuple(rows), None)
        if file.sealed:
            return Log(tuple(rows), file)
        rows += file.rows[at - name.base :]


def known_to(topic: Topic, files: Files, segment: Segment, rules: Rules) -> dict[Message, Position]:
    """Return the requests that a segment's owner recognises as repeated: its predecessors' and its own."""
    segments = {each.id: each for each in topic.segments}
    waiting, known = list(segment.predecessors), dict[Message, Position]()
    while waiting:
        before = segments[waiting.pop()]
        seal = log_of(files, before.id).seal
        if before.load and rules.windows_go_through_loads:
            waiting += before.predecessors
        elif seal is not None:
            known |= dict(seal.known)
    rows = log_of(files, segment.id).rows
    return {row: Position(segment.id, offset) for offset, row in enumerate(rows)} | known


def sealed_log(topic: Topic, files: Files, segment: int, rules: Rules) -> Files:
    """Return the files with the owner's seal at the end of a segment's log. A second actor finds the seal there."""
    log = log_of(files, segment)
    if log.seal is not None or not rules.seals_what_is_open:
        return files
    about = next(each for each in topic.segments if each.id == segment)
    known = frozenset(known_to(topic, files, about, rules).items())
    return created(files, Name(segment, len(log.rows)), File((), "owner", sealed=True, known=known)) or files


# -- topic.json --------------------------------------------------------------------------------------------------------


def reserving(topic: Topic, load_id: str, starts: tuple[int, ...], rules: Rules) -> Topic | None:
    known = topic.load(load_id)
    spared = known is not None and rules.spares_what_is_adopted and topic.adopts(known)
    if known is not None and known.reserved and not spared and topic.next_id > known.first:
        topic, known = given_up(topic, known), None
    if known is not None:
        return None
    taken = [load.ids.stop for load in topic.loads if rules.keeps_ids_given_up or not load.given_up]
    first = max([topic.next_id, *taken]) + IDS_APART
    return topic._replace(loads=(*topic.loads, Load(load_id, first, starts)))


def given_up(topic: Topic, load: Load) -> Topic:
    loads = tuple(each._replace(given_up=True) if each == load else each for each in topic.loads)
    return topic._replace(loads=loads, removed=topic.removed.union(load.ids))


def giving_up(topic: Topic, load_id: str, rules: Rules) -> Topic | None:
    load = topic.load(load_id)
    if load is None or not load.reserved or (topic.adopts(load) and rules.spares_what_is_adopted):
        return None
    return given_up(topic, load)


def forgetting(topic: Topic, gone: frozenset[int], rules: Rules) -> Topic:
    """Return the topic after the files of these segments are deleted.

    Abandoned loads are forgotten too, unless another load would be overtaken then.
    """
    removed, kept, passed, waits = topic.removed - gone, list[Load](), topic.next_id, False
    for load in topic.loads:
        there = not removed.isdisjoint(load.ids)
        if not load.given_up or there or (waits and load.ids.stop > passed):
            kept.append(load)
            waits = waits or load.reserved
        elif rules.keeps_ids_given_up:
            passed = max(passed, load.ids.stop)
    return topic._replace(removed=removed, loads=tuple(kept), next_id=passed)


def free_ids(topic: Topic, count: int, first: int, rules: Rules) -> range:
    for load in topic.loads if rules.passes_by_reserved_ids else ():
        if first < load.ids.stop and load.first < first + count:
            first = load.ids.stop
    return range(first, first + count)


def shares(one: Segment, other: Segment) -> bool:
    return one.start < other.stop and other.start < one.stop


def splitting(topic: Topic, cuts: Sequence[int], rules: Rules) -> Topic | None:
    """Give all open segments successors, cut at those slots: a split, a merge or a roll."""
    if topic.transition is not None:
        return None
    ranges = list(pairwise([0, *cuts, SLOTS]))
    ids = free_ids(topic, len(ranges), topic.next_id, rules)
    before = topic.open
    opened = [Segment(i, *slots) for i, slots in zip(ids, ranges, strict=True)]
    opened = [each._replace(predecessors=tuple(s.id for s in before if shares(s, each))) for each in opened]
    record = Transition(tuple(s.id for s in before), tuple(opened))
    return topic._replace(transition=record, next_id=max(topic.next_id, ids.stop))


def loading(topic: Topic, load: Load, ends: Sequence[int], rules: Rules) -> Topic | None:
    """Begin the transition that adopts a load; None if that is impossible, now or for ever."""
    now = topic.load(load.id)
    is_it = now is not None and now.reserved and now.first == load.first
    if topic.transition is not None or (rules.adopts_what_is_reserved and not is_it):
        return None
    if rules.refuses_what_is_overtaken and topic.next_id > load.first:
        return None
    before = topic.open
    adopt = [
        Segment(i, start, stop, (), end, load.id)
        for i, (start, stop), end in zip(load.ids, pairwise([*load.starts, SLOTS]), ends, strict=True)
    ]
    adopt = [each._replace(predecessors=tuple(s.id for s in before if shares(s, each))) for each in adopt]
    first = load.ids.stop if rules.opens_above_the_load else topic.next_id
    ids = free_ids(topic, len(before), first, rules)
    opened = [s._replace(id=i, predecessors=()) for i, s in zip(ids, before, strict=True)]
    opened = [each._replace(predecessors=tuple(s.id for s in adopt if shares(s, each))) for each in opened]
    record = Transition(tuple(s.id for s in before), tuple(opened), tuple(adopt))
    return topic._replace(transition=record, next_id=max(topic.next_id, ids.stop))


def finished(topic: Topic, record: Transition, ends: Mapping[int, int]) -> Topic | None:
    if topic.transition != record:
        return None
    sealed = tuple(s._replace(end=ends[s.id]) if s.id in record.seal else s for s in topic.segments)
    topic = topic._replace(segments=(*sealed, *record.adopt, *record.opened), transition=None)
    if record.adopt:
        ends_of_load = tuple(each.end for each in record.adopt)
        loads = (
            load._replace(ends=ends_of_load, version=topic.version + 1)
            if load.id == record.adopt[0].load and load.reserved
            else load
            for load in topic.loads
        )
        topic = topic._replace(loads=tuple(loads))
    return topic


# -- actors ------------------------------------------------------------------------------------------------------------


class Swap(NamedTuple):
    """A compare-and-swap under way: the version that was read, and the topic to write."""

    read: int
    wanted: Topic

    def take_effect(self, topic: Topic, rules: Rules) -> Topic | None:
        """Return the topic after it; None if the topic has changed since it was read."""
        if topic.version != self.read and rules.compares_and_swaps:
            return None
        return self.wanted._replace(version=topic.version + 1)


class Publisher(NamedTuple):
    """Publishes one message after the other by the route that it knows. Repeats a message if the answer was lost.

    The owner's put is one step: it appends to the log, unless the segment is sealed.
    """

    name: str
    slots: tuple[int, ...]
    sent: int = 0
    route: Topic | None = None
    repeats: bool = True

    def steps(self, state: State, rules: Rules) -> Iterator[Step]:
        if self.sent == len(self.slots):
            return
        message = Message(self.name, self.sent, self.slots[self.sent])
        if self.route is None:
            told = state.told
            if self.repeats:
                told = told._replace(after=told.after | {(load.id, message) for load in told.committed})
            yield Step(f"{self.name} asks who owns slot {message.slot}", self._replace(route=state.topic), told=told)
            return
        owned = next(each for each in self.route.open if each.start <= message.slot < each.stop)
        known = known_to(self.route, state.files, owned, rules)
        log = log_of(state.files, owned.id)
        if message in known:
            yield self._answered(state, message, known[message], state.files)
        elif log.seal is not None:
            yield Step(f"{self.name} finds segment {owned.id} sealed", self._replace(route=None))
        else:
            place = Position(owned.id, len(log.rows))
            files = created(state.files, Name(*place), File((message,), "owner"))
            assert files is not None
            yield self._answered(state, message, place, files)
            if self.repeats:
                lost = self._replace(route=None, repeats=False)
                yield Step(f"{message} is stored at {place}, and the answer lost", lost, files=files)

    def _answered(self, state: State, message: Message, place: Position, files: Files) -> Step:
        told = state.told._replace(stored=state.told.stored | {(message, place)})
        after = self._replace(sent=self.sent + 1, route=None, repeats=True)
        return Step(f"{message} is stored at {place}", after, files=files, told=told)


@lru_cache
def load_files(load: Load, rows: int, cuts: tuple[int, ...]) -> tuple[tuple[Name, File], ...]:
    """Return the files of a load with that many rows in each segment, cut at those offsets."""
    made = []
    for segment, slot in zip(load.ids, load.starts, strict=True):
        messages = tuple(Message(load.id, n, slot) for n in range(rows))
        for base, end in pairwise([0, *cuts, rows]):
            made.append((Name(segment, base), File(messages[base:end], f"load:{load.id}")))
    return tuple(made)


class Client(NamedTuple):
    """Reserves a load, writes its files, the last one first if `backwards`, and then asks for the commit.

    If a file exists already, it must be the load's own. Otherwise the client gives up.
    """

    load: str
    starts: tuple[int, ...] = (0,)
    rows: int = 2
    cuts: tuple[int, ...] = ()
    backwards: bool = False
    swap: Swap | None = None
    reserved: Load | None = None
    written: int = 0
    done: str = ""

    def claims(self) -> tuple[tuple[Name, File], ...]:
        assert self.reserved is not None
        return load_files(self.reserved, self.rows, self.cuts)

    def steps(self, state: State, rules: Rules) -> Iterator[Step]:
        if self.done:
            return
        if self.reserved is None:
            yield from self._reserve(state, rules)
            return
        files = self.claims()
        name, file = files[-1 - self.written if self.backwards else self.written]
        if dict(state.files).get(name, file) != file:
            yield Step(f"{self.load}: {name} is another's", self._replace(done="gave up"))
            return
        with_it = created(state.files, name, file)
        if self.written + 1 < len(files):
            yield Step(f"{self.load}: {name} is written", self._replace(written=self.written + 1), files=with_it)
            return
        told = state.told
        if self.load not in told.asked:
            before = told.before | {(self.load, message) for message, _ in told.stored}
            told = told._replace(before=before, asked=told.asked | {self.load})
        does = f"{self.load}: {name} is written, and the commit asked for"
        yield Step(does, self._replace(done="asked"), files=with_it, told=told)

    def _reserve(self, state: State, rules: Rules) -> Iterator[Step]:
        if self.swap is not None:
            topic = self.swap.take_effect(state.topic, rules)
            yield Step(f"{self.load} is reserved", self._replace(swap=None), topic)
            return
        wanted = reserving(state.topic, self.load, self.starts, rules)
        if wanted is not None:
            swap = Swap(state.topic.version, wanted)
            yield Step(f"{self.load} is to be reserved", self._replace(swap=swap))
            return
        load = state.topic.load(self.load)
        assert load is not None
        known = self._replace(done="known") if load.version else self._replace(reserved=load)
        yield Step(f"{self.load} has {load}", known)


class Runner(NamedTuple):
    """Carries out the transition under way: a step for each seal, then its end."""

    record: Transition | None = None
    sealed: int = 0
    swap: Swap | None = None

    def steps(self, state: State, rules: Rules) -> Iterator[Step]:
        """Yield the next step. The actor is None in the end: no transition is under way, or it is over."""
        record = self.record or state.topic.transition
        if record is None:
            yield Step("finds nothing under way", None)
        elif self.sealed < len(record.seal):
            segment = record.seal[self.sealed]
            files = sealed_log(state.topic, state.files, segment, rules)
            yield Step(f"seals segment {segment}", Runner(record, self.sealed + 1), files=files)
        elif self.swap is None:
            ends = {each: len(log_of(state.files, each).rows) for each in record.seal}
            wanted = finished(state.topic, record, ends)
            after = wanted and self._replace(swap=Swap(state.topic.version, wanted))
            yield Step("is about to end the transition", after)
        else:
            topic = self.swap.take_effect(state.topic, rules)
            yield Step("ends the transition", None if topic else self._replace(swap=None), topic)


class Splitter(NamedTuple):
    """A leader that begins one transition, with cuts at those slots.

    If it finds another transition, it finishes that one.
    """

    cuts: tuple[int, ...]
    swap: Swap | None = None
    runner: Runner | None = None
    done: bool = False

    def steps(self, state: State, rules: Rules) -> Iterator[Step]:
        if self.done:
            return
        if self.runner is not None:
            for step in self.runner.steps(state, rules):
                yield step._replace(
                    does=f"the leader {step.does}", actor=self._replace(runner=step.actor, done=step.actor is None)
                )
        elif self.swap is not None:
            topic = self.swap.take_effect(state.topic, rules)
            yield Step("the leader begins a transition", self._replace(swap=None, runner=topic and Runner()), topic)
        else:
            wanted = splitting(state.topic, self.cuts, rules)
            after = self._replace(runner=Runner()) if wanted is None else self._replace(
                swap=Swap(state.topic.version, wanted)
            )  # fmt: skip
            yield Step("the leader wants a transition", after)


class Commit(NamedTuple):
    """One request for a commit, at one broker. `client` is the index in `actors` of the client that sends it."""

    client: int
    broker: str
    load: Load | None = None
    pinned: tuple[tuple[Name, File], ...] = ()
    at: str = "asked"
    sealed: int = 0
    swap: Swap | None = None
    runner: Runner | None = None

    def steps(self, state: State, rules: Rules) -> Iterator[Step]:
        asking: Client = state.actors[self.client]
        if asking.done != "asked" or self.at == "over":
            return
        if self.runner is not None:
            for step in self.runner.steps(state, rules):
                yield step._replace(does=f"{self.broker} {step.does}", actor=self._replace(runner=step.actor))
            return
        yield from getattr(self, f"_{self.at}")(state, rules, asking.claims())

    def _asked(self, state: State, rules: Rules, claimed: tuple[tuple[Name, File], ...]) -> Iterator[Step]:
        load = state.topic.load(state.actors[self.client].load)
        if load is None or (not load.version and claimed[0][0].segment not in load.ids):
            yield Step(f"{self.broker} knows of no such load", self._replace(at="over"))
        elif load.version:
            yield self._answered(state, load)
        elif state.topic.adopts(load):
            yield Step(f"{self.broker} finds it being adopted", self._replace(runner=Runner()))
        else:
            yield Step(f"{self.broker} looks at the load", self._replace(load=load, at="pin"))

    def _found(self, state: State, claimed: tuple[tuple[Name, File], ...]) -> tuple[tuple[Name, File], ...] | None:
        """Return the claimed files as they are now; None if one is missing, or if there are other files."""
        assert self.load is not None
        wanted, ends = {name for name, _ in claimed}, self._ends(claimed)
        there = [each for each in state.files if each[0].segment in self.load.ids]
        found = tuple(each for each in there if each[0] in wanted)
        others = [name for name, _ in there if name not in wanted and name != Name(name.segment, ends[name.segment])]
        return None if others or len(found) < len(wanted) else found

    def _ends(self, claimed: tuple[tuple[Name, File], ...]) -> dict[int, int]:
        assert self.load is not None
        return {i: sum(len(file.rows) for name, file in claimed if name.segment == i) for i in self.load.ids}

    def _pin(self, state: State, rules: Rules, claimed: tuple[tuple[Name, File], ...]) -> Iterator[Step]:
        """Read and check the files as of one moment. A file that changed meanwhile counts as another file."""
        found = self._found(state, claimed)
        if found is None or found != claimed:
            yield self._refused(state, rules)
        else:
            at = "seal" if rules.seals_the_load else "look"
            yield Step(f"{self.broker} has checked the files", self._replace(pinned=found, at=at))

    def _seal(self, state: State, rules: Rules, claimed: tuple[tuple[Name, File], ...]) -> Iterator[Step]:
        assert self.load is not None
        segment, seal = self.load.ids[self.sealed], File((), f"load:{self.load.id}", sealed=True)
        name = Name(segment, self._ends(claimed)[segment])
        files = created(state.files, name, seal)
        if files is None and dict(state.files)[name] != seal and rules.compares_seals:
            yield self._refused(state, rules)
            return
        done = self.sealed + 1 == len(self.load.ids)
        after = self._replace(sealed=self.sealed + 1, at="look" if done else "seal")
        yield Step(f"{self.broker} seals segment {segment} of the load", after, files=files)

    def _look(self, state: State, rules: Rules, claimed: tuple[tuple[Name, File], ...]) -> Iterator[Step]:
        if rules.looks_again_at_files and self._found(state, claimed) != self.pinned:
            yield self._refused(state, rules)
        else:
            yield Step(f"{self.broker} has looked again", self._replace(at="begin"))

    def _begin(self, state: State, rules: Rules, claimed: tuple[tuple[Name, File], ...]) -> Iterator[Step]:
        assert self.load is not None
        wanted = loading(state.topic, self.load, list(self._ends(claimed).values()), rules)
        now = state.topic.load(self.load.id)
        if now is not None and now.version and now.first == self.load.first:
            yield self._answered(state, now)
        elif wanted is not None:
            swap = Swap(state.topic.version, wanted)
            yield Step(f"{self.broker} is to begin the adoption", self._replace(swap=swap, at="swap"))
        elif state.topic.transition is not None:
            yield Step(f"{self.broker} finds another transition", self._replace(runner=Runner()))
        else:
            yield Step(f"{self.broker}: it was given up, or overtaken", self._replace(at="over"))

    def _swap(self, state: State, rules: Rules, claimed: tuple[tuple[Name, File], ...]) -> Iterator[Step]:
        assert self.swap is not None
        topic = self.swap.take_effect(state.topic, rules)
        after = self._replace(at="begin", swap=None, runner=topic and Runner())
        yield Step(f"{self.broker} begins the adoption", after, topic)

    def _answered(self, state: State, load: Load) -> Step:
        told = state.told._replace(committed=state.told.committed | {load})
        return Step(f"{self.broker} answers: adopted, {load}", self._replace(at="over"), told=told)

    def _refused(self, state: State, rules: Rules) -> Step:
        """Refuse the load, unless another broker has adopted it meanwhile or is adopting it."""
        assert self.load is not None
        now = state.topic.load(self.load.id)
        adopted = now is not None and now.first == self.load.first and (now.version or state.topic.adopts(now))
        if not adopted:
            return Step(f"{self.broker} refuses the load", self._replace(at="over"))
        if rules.looks_before_refusing:
            return Step(f"{self.broker} finds it adopted by another", self._replace(at="asked"))
        told = state.told._replace(refused_though_adopted=state.told.refused_though_adopted | {self.load.id})
        return Step(f"{self.broker} refuses the load", self._replace(at="over"), told=told)


class Sweeper(NamedTuple):
    """Abandons a load, on request or because of its age, and deletes its files after the grace period.

    `looks` is how often it starts again.
    """

    load: str
    looks: int = 1
    swap: Swap | None = None
    doomed: frozenset[int] = frozenset()

    def steps(self, state: State, rules: Rules) -> Iterator[Step]:
        if self.swap is not None:
            topic = self.swap.take_effect(state.topic, rules)
            yield Step(f"{self.load} is given up", self._replace(swap=None), topic)
        elif self.doomed:
            files, topic = without(state.files, self.doomed), forgetting(state.topic, self.doomed, rules)
            topic = topic._replace(version=topic.version + 1)
            yield Step(f"segments {set(self.doomed)} are deleted", self._replace(doomed=frozenset()), topic, files)
        elif self.looks:
            again = self._replace(looks=self.looks - 1)
            if state.topic.removed:
                yield Step("looks what is to be deleted", again._replace(doomed=state.topic.removed))
            elif not rules.sweeps_by_the_record and (load := state.topic.load(self.load)) and load.reserved:
                yield Step(f"finds {self.load} too old", again._replace(doomed=frozenset(load.ids)))
            elif (wanted := giving_up(state.topic, self.load, rules)) is not None:
                swap = Swap(state.topic.version, wanted)
                yield Step(f"{self.load} is to be given up", self._replace(swap=swap))


class Maintainer(NamedTuple):
    """Rolls up the adopted files, then deletes the files that the roll-ups replace."""

    load: str
    rolled: bool = False
    deleted: bool = False

    def steps(self, state: State, rules: Rules) -> Iterator[Step]:
        load = state.topic.load(self.load)
        if load is None or not load.version or self.deleted:
            return
        names = [n for n, file in state.files if n.segment in load.ids and not file.sealed and n.end < 0]
        if self.rolled:
            files = tuple(each for each in state.files if each[0] not in names)
            yield Step("the files that were rolled up go", self._replace(deleted=True), files=files)
            return
        files = state.files
        for segment in load.ids:
            log = log_of(files, segment)
            files = created(files, Name(segment, 0, len(log.rows)), File(log.rows, "maintainer")) or files
        yield Step(f"{self.load} is rolled up", self._replace(rolled=True), files=files)


class Meddler(NamedTuple):
    """Overwrites a file of a load, which is forbidden, before the load is sealed. Later, brokers no longer read it."""

    load: str
    done: bool = False

    def steps(self, state: State, rules: Rules) -> Iterator[Step]:
        load = state.topic.load(self.load)
        if self.done or load is None or any(f.sealed for n, f in state.files if n.segment in load.ids):
            return
        for name, file in state.files:
            if name.segment in load.ids:
                other = file._replace(rows=tuple(row._replace(by="meddler") for row in file.rows))
                files = tuple(sorted((name, other) if each[0] == name else each for each in state.files))
                yield Step(f"{name} is replaced", self._replace(done=True), files=files)


# -- invariants --------------------------------------------------------------------------------------------------------


@lru_cache(1 << 16)
def visible(topic: Topic, files: Files) -> tuple[tuple[Message, Position], ...]:
    """Return all messages that brokers return, in the order of segment ids, which is the order of each key."""
    found: list[tuple[Message, Position]] = []
    for segment in sorted(topic.segments):
        rows = log_of(files, segment.id).rows
        found += [(row, Position(segment.id, offset)) for offset, row in enumerate(rows)]
    return tuple(found)


def complaints(state: State) -> Iterator[str]:
    """Yield the invariants that a state violates."""
    topic, told = state.topic, state.told
    shown = visible(topic, state.files)
    place = dict(shown)
    if len(place) < len(shown):
        yield "a message is there twice"
    if not set(told.stored) <= set(shown):
        yield "an acknowledged message is not at its acknowledged position"
    opened = sorted((each.start, each.stop) for each in topic.open)
    if [0, *(stop for _, stop in opened)] != [*(start for start, _ in opened), SLOTS]:
        yield "the open segments do not tile the slots"
    if any(each.end not in (-1, len(log_of(state.files, each.id).rows)) for each in topic.segments):
        yield "a segment that was sealed has another end"
    if len({i for i, _ in told.uses}) < len(told.uses):
        yield "an id was used twice"
    if told.refused_though_adopted:
        yield "a load was refused that is adopted"
    yield from _complaints_about_loads(state, place)
    yield from _complaints_about_order(told, [message for message, _ in shown])


def _complaints_about_loads(state: State, place: Mapping[Message, Position]) -> Iterator[str]:
    topic, told = state.topic, state.told
    adopted = [load for load in topic.loads if load.version]
    if any(load not in adopted for load in told.committed):
        yield "an answered commit is undone, or was answered in another way"
    rows = {load: {row for row in place if row.by == load} for load in {row.by for row in place}}
    for load in adopted:
        wanted = {
            Message(load.id, n, slot) for slot, end in zip(load.starts, load.ends, strict=True) for n in range(end)
        }
        if rows.get(load.id) != wanted or {place[row].segment for row in wanted} != set(load.ids):
            yield "an adopted load is not whole"
    publishers = {actor.name for actor in state.actors if isinstance(actor, Publisher)}
    if not rows.keys() <= publishers | {load.id for load in adopted}:
        yield "a message is there that nobody has published, or whose load was not adopted"


def _complaints_about_order(told: Told, shown: Sequence[Message]) -> Iterator[str]:
    at = {message: number for number, message in enumerate(shown)}
    for before, after in pairwise(sorted(shown, key=lambda m: (m.by, m.slot, m.number))):
        if (before.by, before.slot) == (after.by, after.slot) and at[before] > at[after]:
            yield "messages of one key are not in order"
    for message in shown:
        for load, other in told.before:
            if message.by == load and other.slot == message.slot and at.get(other, -1) > at[message]:
                yield "what was published before a load comes after it"
        for load, other in told.after:
            if message.by == load and other.slot == message.slot and at.get(other, len(at)) < at[message]:
                yield "what was published after a load comes before it"


# -- the explorer ------------------------------------------------------------------------------------------------------


class Violation(Exception):
    """An invariant does not hold. The message lists the steps that led there."""


class TooLarge(Exception):
    """There are more states than the limit."""


@dataclass(frozen=True)
class Explored:
    """The number of states, and all possible answers at the end."""

    states: int
    outcomes: frozenset[Told]


Key = tuple[int, ...]
"""A state as numbers: those of its topic, its files, its answers and its actors."""


class Explorer:
    """Explores all interleavings of some actors, breadth first.

    Components of states are numbered. The next steps of an actor are computed once for all states that look the same to
    it.
    """

    def __init__(self, rules: Rules, most_states: int) -> None:
        self._rules, self._most_states = rules, most_states
        self._numbers: dict[Any, int] = {}
        self._parts: list[Any] = []
        self._came_from: dict[Key, tuple[Key, str] | None] = {}
        self._steps: dict[tuple[int, Key], list[tuple[str, int, Key]]] = {}
        self._checked: set[Key] = set()
        self._waiting: deque[Key] = deque()

    def explore(self, actors: Sequence[Any]) -> Explored:
        """Explore them. Raises `Violation`, with the fewest steps that lead to it, and `TooLarge`."""
        self._add(tuple(map(self._number, (Topic(), (), Told(), *actors))), None)
        outcomes = set[Told]()
        while self._waiting:
            key = self._waiting.popleft()
            if key[:3] not in self._checked:
                self._check(key)
            ended = True
            for place in range(3, len(key)):
                for does, actor, changed in self._steps_of(key, place):
                    ended = False
                    after = (*changed, *key[3:place], actor, *key[place + 1 :])
                    if after not in self._came_from:
                        self._add(after, (key, does))
            if ended:
                outcomes.add(self._parts[key[2]])
        return Explored(len(self._came_from), frozenset(outcomes))

    def _number(self, part: Any) -> int:
        number = self._numbers.setdefault(part, len(self._parts))
        if number == len(self._parts):
            self._parts.append(part)
        return number

    def _state(self, key: Key) -> State:
        topic, files, told, *actors = (self._parts[number] for number in key)
        return State(topic, files, told, tuple(actors))

    def _add(self, key: Key, came: tuple[Key, str] | None) -> None:
        self._came_from[key] = came
        self._waiting.append(key)
        if len(self._came_from) > self._most_states:
            raise TooLarge(f"more than {self._most_states} states")

    def _steps_of(self, key: Key, place: int) -> list[tuple[str, int, Key]]:
        """Return the possible steps of the actor with that index: its state then, topic, files and answers."""
        actor = self._parts[key[place]]
        seen = (*key[:3], key[place], *([key[3 + actor.client]] if isinstance(actor, Commit) else []))
        steps = self._steps.get((place, seen))
        if steps is None:
            state = self._state(key)
            steps = self._steps[place, seen] = [self._taken(state, step) for step in actor.steps(state, self._rules)]
        return steps

    def _taken(self, state: State, step: Step) -> tuple[str, int, Key]:
        topic = state.topic if step.topic is None else step.topic
        files = state.files if step.files is None else step.files
        told = state.told if step.told is None else step.told
        if step.topic is not None:
            told = told._replace(uses=told.uses | _uses(state.topic, topic))
        return step.does, self._number(step.actor), (self._number(topic), self._number(files), self._number(told))

    def _check(self, key: Key) -> None:
        self._checked.add(key[:3])
        for complaint in complaints(self._state(key)):
            raise Violation("\n".join([f"{complaint}:", *self._way_to(key)]))

    def _way_to(self, key: Key) -> list[str]:
        way: list[str] = []
        while (came := self._came_from[key]) is not None:
            key, does = came
            way.append(does)
        return way[::-1]


def explore(actors: Sequence[Any], rules: Rules, *, most_states: int = 200_000) -> Explored:
    """As `Explorer.explore`."""
    return Explorer(rules, most_states).explore(actors)


def _uses(before: Topic, after: Topic) -> set[tuple[int, int]]:
    """Return the ids that this version of topic.json assigns."""
    known = {(load.id, load.first) for load in before.loads}
    reserved = [i for load in after.loads if (load.id, load.first) not in known for i in load.ids]
    begun = after.transition if before.transition is None else None
    opened = [] if begun is None else [segment.id for segment in begun.opened]
    return {(i, after.version) for i in (*reserved, *opened)}
