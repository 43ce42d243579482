"""Stream groups beside what is true: coordinators are killed and live on as zombies, members die, stall and restart.

Heartbeats and commits arrive late, twice, and at any coordinator. Segments split and merge meanwhile.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from filer.slots import SLOTS
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from groups.fold import GroupFold
from groups.records import Created, Membership, Record, Snapshot, from_json, to_json
from groups.settings import GroupSettings
from groups.stream.members import StreamMembers, Verdict
from groups.stream.progress import StreamProgress
from tests.support.thoroughness import few_or_many

SETTINGS = GroupSettings(mode="stream", session_seconds=3)
NAMES = "abc"
LENGTH = 12
STEPS = 2500
HALF = SLOTS // 2
# A split and a merge: (the ids that are sealed, the segments that are opened with their ranges).
TRANSITIONS = [
    ((0,), {2: (0, HALF // 2), 3: (HALF // 2, HALF)}),
    ((3, 1), {4: (HALF // 2, SLOTS)}),
    ((2, 4), {5: (0, SLOTS)}),
]
PREDECESSORS = {new: sealed for sealed, opened in TRANSITIONS for new in opened}


def segment(segment_id: int, start: int, stop: int) -> Segment:
    return Segment(
        id=segment_id,
        start_slot=start,
        stop_slot=stop,
        brokers=("b",),
        opened_us=0,
        reason="create",
        predecessors=PREDECESSORS.get(segment_id, ()),
    )


def first_state() -> TopicState:
    segments = (segment(0, 0, HALF), segment(1, HALF, SLOTS))
    return TopicState(topic="t", created_us=0, version=1, next_segment=2, config=TopicConfig(), segments=segments)


def after(state: TopicState, sealed: tuple[int, ...], opened: dict[int, tuple[int, int]]) -> TopicState:
    ends = {"state": "sealed", "end_offset": LENGTH, "successors": tuple(opened)}
    segments = [each.model_copy(update=ends if each.id in sealed else {}) for each in state.segments]
    segments += [segment(new, *its_range) for new, its_range in opened.items()]
    return state.model_copy(
        update={"segments": tuple(segments), "next_segment": max(opened) + 1, "version": state.version + 1}
    )


@dataclass(slots=True)
class Coordinator:
    """One that took over with the log as it was. `storing`: a record on its way, and whether it has landed."""

    members: StreamMembers
    epoch: int
    storing: tuple[Membership, bool] | None = None
    ends: bool = False
    waiting: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Process:
    """A start of a member. `joined` is its number, once it knows it; `asked` counts its heartbeats."""

    name: str
    joined: int | None = None
    joins: bool = False
    holds: dict[int, tuple[int, int]] = field(default_factory=dict)
    released: list[tuple[int, int]] = field(default_factory=list)
    let_go: set[tuple[int, int]] = field(default_factory=set)
    until_ms: int = 0
    excused: bool = True


class World:
    """The log and who may write it, and what is true of members."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log: list[bytes] = []
        self.truth, self.positions, self.newest = GroupFold(), dict[int, int](), Counter[str]()
        self.now_ms, self.epoch = 1_000_000, 0
        self.state = first_state()
        self.transitions = list(TRANSITIONS)
        self.processes = [Process(name) for name in NAMES]
        self.sent: list[tuple[int, int, int]] = []
        self.beats: list[tuple[str, int, list[tuple[int, int]]]] = []
        self.accepted_ms: dict[tuple[int, int, int], int] = {}
        self.told: dict[tuple[int, int], tuple[str, int]] = {}
        self.counts: Counter[str] = Counter()
        self.append(
            Created(at=self.now_ms, id="g", settings=SETTINGS.in_force(), positions=[(0, 0), (1, 0)]), self.epoch
        )
        self.coordinators = [self.taken_over()]

    def added_up(self) -> StreamProgress:
        fold = GroupFold()
        for record in map(from_json, self.log):
            fold.add("t/g", record)
        progress = fold.groups["t/g"]
        assert isinstance(progress, StreamProgress)
        return progress

    def append(self, record: Record, epoch: int) -> bool:
        if epoch != self.epoch:
            return False
        self.log.append(to_json(record))
        self.truth.add("t/g", from_json(self.log[-1]))
        now = self.truth.groups["t/g"]
        assert isinstance(now, StreamProgress)
        self.newest.update(now.members)
        for each, position in now.positions().items():
            assert position >= self.positions.get(each, 0), "a position goes back"
            drained = {each for each, reached in self.positions.items() if reached >= LENGTH}
            assert each in self.positions or drained >= set(PREDECESSORS.get(each, ())), "entered too early"
        self.positions.update(now.positions())
        return True

    def taken_over(self) -> Coordinator:
        return Coordinator(StreamMembers(self.added_up(), now_ms=self.now_ms), self.epoch)

    # -- coordinators ------------------------------------------------------------------------------------------

    def work(self, coordinator: Coordinator) -> None:
        members = coordinator.members
        if coordinator.storing is None:
            members.tick(self.now_ms)
            rates = {each: self.chance.choice((0.0, 1.0, 50.0)) for each in range(6)}
            members.plan(self.state, rates)
            if members.has_news:
                news = members.take_news(self.now_ms)
                coordinator.storing = news, self.append(news, coordinator.epoch)
            return
        (news, landed), coordinator.storing = coordinator.storing, None
        if not landed:
            coordinator.ends = True
            return
        members.stored(news)
        for committed in news.committed:
            key = (committed.segment, committed.epoch, committed.position)
            if key in coordinator.waiting:
                self.accept(key)
        coordinator.waiting.clear()

    def befall(self, coordinator: Coordinator) -> None:
        what = self.chance.random()
        if what < 0.3:
            coordinator.ends = True
        elif what < 0.5:
            if coordinator.epoch == self.epoch and coordinator.storing is None:
                self.append(Snapshot(at=self.now_ms, state=coordinator.members.progress.to_plain()), self.epoch)
        elif what < 0.7:
            self.epoch += 1
            self.coordinators.append(self.taken_over())
        elif self.transitions:
            sealed, opened = self.transitions[0]
            if all(each.state == "open" for each in self.state.segments if each.id in sealed):
                self.transitions.pop(0)
                self.state = after(self.state, sealed, opened)

    # -- members -------------------------------------------------------------------------------------------------

    def beat(self, coordinator: Coordinator, process: Process) -> None:
        members = coordinator.members
        if process.joined is None:
            process.joined = members.join(process.name, self.now_ms)
            process.joins = process.joined is not None
            if process.joins:
                coordinator.waiting.append((-1, 0, 0))
            return
        if process.joins:  # it is told once the record is stored; an answer that is lost costs a start
            if coordinator.members.progress.members.get(process.name) == process.joined:
                process.joins = False
            elif not members.awaits(process.name):
                process.joined, process.joins = None, False
            return
        beat = (process.name, process.joined, list(process.released))
        self.beats = [*self.beats[-30:], beat]
        verdict = members.hear(*beat, self.now_ms)
        if verdict is Verdict.FENCED:
            process.joined, process.holds, process.released = None, {}, []
            process.let_go = set()
        if verdict is not Verdict.ACCEPTED:
            return
        told = members.told(beat[0], beat[1])
        process.until_ms, process.excused = self.now_ms + SETTINGS.session_ms, coordinator.epoch != self.epoch
        holds = {}
        for each, epoch, position in told.holds:
            if (each, epoch) in process.let_go:
                continue
            assert self.told.setdefault((each, epoch), beat[:2]) == beat[:2]
            holds[each] = process.holds.get(each, (epoch, position))
            if holds[each][0] != epoch:
                holds[each] = (epoch, position)
            if each not in process.holds:
                self.check_taken(process, each, excused=process.excused)
        released = [*told.release, *((e, epoch) for e, epoch, _ in told.holds if (e, epoch) in process.let_go)]
        process.holds, process.released = holds, released
        process.let_go |= set(told.release)

    def check_taken(self, process: Process, segment_id: int, *, excused: bool) -> None:
        self.counts["taken"] += 1
        for other in self.processes:
            runs = not other.excused and other.until_ms > self.now_ms and other.name != process.name
            if (other.joined or 0) < self.newest[other.name]:
                continue  # another process calls itself by its name
            assert excused or not (runs and segment_id in other.holds), "a segment is with two members"

    def deliver(self, process: Process) -> None:
        for segment_id, (epoch, position) in list(process.holds.items()):
            position = min(position + self.chance.randint(1, 3), LENGTH)
            process.holds[segment_id] = (epoch, position)
            self.sent.append((segment_id, epoch, position))

    def commit(self, coordinator: Coordinator) -> None:
        if not self.sent:
            return
        key = self.chance.choice(self.sent[-10:] if self.chance.random() < 0.8 else self.sent)
        match coordinator.members.commit(self.told[key[:2]][0], *key):
            case Verdict.ACCEPTED:
                self.accept(key)
            case Verdict.LATER:
                coordinator.waiting.append(key)
            case Verdict.FENCED:
                self.counts["fenced"] += 1
                is_recent = self.now_ms - self.accepted_ms.get(key, 0) < SETTINGS.session_ms
                assert not is_recent, "a commit that was accepted is refused"

    def accept(self, key: tuple[int, int, int]) -> None:
        """It counts: when its record landed, nobody else had the segment."""
        self.counts["accepted"] += 1
        epochs: dict[int, int] = {}
        for record in map(from_json, self.log):
            if isinstance(record, Membership):
                for committed in record.committed:
                    if committed[:2] == key[:2] and committed.position >= key[2]:
                        assert epochs[key[0]] == key[1], "a commit counts though somebody else has the segment"
                        self.accepted_ms.setdefault(key, record.at)
                        return
                epochs.update((given.segment, given.epoch) for given in record.given)
        # Or it moves nothing: the segment was there already when it was given away under that epoch.
        assert max(position for each, _, position in self.sent if each == key[0]) >= key[2]

    def restart(self, process: Process) -> None:
        if self.chance.random() < 0.5:
            self.processes.remove(process)  # killed; else it lives on beside the new one
        elif len([each for each in self.processes if each.name == process.name]) > 1:
            return
        if not any(each.name == process.name for each in self.processes) or self.chance.random() < 0.3:
            self.processes.append(Process(process.name))

    def run(self, steps: int, *, calm: bool = False) -> None:
        for _ in range(steps):
            self.coordinators = [each for each in self.coordinators if not each.ends]
            if not any(each.epoch == self.epoch for each in self.coordinators):
                self.epoch += 1
                self.coordinators.append(self.taken_over())
            coordinator, process = self.chance.choice(self.coordinators), self.chance.choice(self.processes)
            what = self.chance.random()
            if what < 0.3:
                self.work(coordinator)
            elif what < 0.55:
                self.beat(coordinator, process)
            elif what < 0.65:
                self.deliver(process)
            elif what < 0.85:
                self.commit(coordinator)
            elif what < 0.88 and self.beats:
                coordinator.members.hear(*self.chance.choice(self.beats), self.now_ms)
            elif what < 0.97 or calm:
                self.now_ms += self.chance.choice((1, 50, 200)) if calm else self.chance.choice((1, 100, 1000))
            elif what < 0.98:
                self.restart(process)
            else:
                self.befall(coordinator)


@pytest.mark.parametrize("seed", range(few_or_many(4, 8)))
def test_promises_are_kept(seed: int) -> None:
    world = World(seed)
    world.run(STEPS)
    while world.transitions:
        world.befall(world.coordinators[-1])
    # In peace, everything gets done.
    world.run(2 * STEPS, calm=True)
    progress = world.added_up()
    assert progress.positions() == {5: LENGTH}, progress.to_plain()
    assert world.counts["taken"] > 10 and world.counts["accepted"] > 20 and world.counts["fenced"] > 5, world.counts
