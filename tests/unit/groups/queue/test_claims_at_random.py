"""Claims beside what is true: coordinators are killed, hand over and live on as zombies, consumers do as they like."""

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

import pytest

from groups.offset_set import OffsetSet
from groups.queue import key_lines
from groups.queue.claims import Aside, GivingBack, Grant, Outcome, QueueClaims, Verdict
from groups.queue.leases import Claim
from groups.queue.progress import QueueProgress
from groups.records import Created, Done, Leases, Progress, Record, Rested, Snapshot, Taken, from_json, to_json
from groups.settings import GroupSettings

SETTINGS = GroupSettings(lease_seconds=3, max_deliveries=4, backoff_seconds=(0, 2), max_in_flight=15)
LENGTHS = {3: 60, 7: 40}
UNTOUCHED = GivingBack("stopped", untouched=True)
STEPS = 1500


def key_of(segment: int, offset: int) -> str | None:
    """One of few keys, which only this segment has; every sixth message has none."""
    return f"{segment} {offset % 6}" if offset % 6 else None


def added_up(log: list[bytes]) -> QueueProgress:
    progress: QueueProgress | None = None
    for record in map(from_json, log):
        match record:
            case Created():
                progress = QueueProgress(
                    record.id, GroupSettings.model_validate(record.settings), dict(record.positions)
                )
            case Snapshot():
                progress = QueueProgress.from_plain(record.state)
            case Progress():
                assert progress is not None
                progress.apply(record)
            case Leases():
                assert progress is not None
                progress.hand_over(record)
            case Taken():
                assert progress is not None
                progress.take()
    assert progress is not None
    return progress


@dataclass(slots=True)
class Coordinator:
    """One that takes over with the log as it is. `storing`: a record on its way, and whether it has landed."""

    claims: QueueClaims
    epoch: int
    storing: tuple[Progress, bool] | None = None
    asked: list[Aside] = field(default_factory=list)
    exposing: list[Aside] = field(default_factory=list)
    ends: bool = False


@dataclass
class World:
    """The log and who may write it, and what is true of the messages."""

    chance: random.Random
    settings: GroupSettings = SETTINGS
    log: list[bytes] = field(default_factory=list)
    now_ms: int = 1_000_000
    epoch: int = 0
    done: dict[int, OffsetSet] = field(default_factory=dict)
    claimed: list[tuple[Claim, list[tuple[int, int]]]] = field(default_factory=list)
    """All claims there ever were, and their ranges."""
    running_until_ms: dict[tuple[int, int], int] = field(default_factory=dict)
    """By message: until when the lease of the claim runs that has it."""
    accepted: dict[tuple[int, int], int] = field(default_factory=dict)
    acked_at_ms: dict[tuple[int, int], int] = field(default_factory=dict)
    hand_outs: Counter[tuple[int, int]] = field(default_factory=Counter)
    received: set[tuple[int, int]] = field(default_factory=set)
    excused: set[tuple[int, int, int]] = field(default_factory=set)
    """Deliveries by coordinators that do not count any more."""
    letters: Counter[tuple[int, int]] = field(default_factory=Counter)
    asked: set[tuple[int, int]] = field(default_factory=set)
    """Messages that somebody has claimed since they were last free."""

    def __post_init__(self) -> None:
        created = Created(
            at=self.now_ms, id="g", settings=self.settings.model_dump(mode="json"), positions=[(s, 0) for s in LENGTHS]
        )
        self.append(created, 0)
        self.coordinators = [self.taken_over()]

    def append(self, record: Record, epoch: int) -> bool:
        """The store takes records of the newest coordinator alone."""
        if epoch != self.epoch:
            return False
        self.log.append(to_json(record))
        if isinstance(record, Progress):
            for each in (*record.acked, *record.dead, *record.expired):
                self.done.setdefault(each[0], OffsetSet()).add(each[1], each[2])
        return True

    def taken_over(self) -> Coordinator:
        progress = added_up(self.log)
        claims = QueueClaims(progress, now_ms=self.now_ms)
        for segment, live in claims._live.items():
            for start, stop in live.unknown.ranges():
                assert {(segment, offset) for offset in range(start, stop)} <= self.asked, (
                    "nobody has claimed what waits"
                )
        if claims.must_learn:
            for segment, start, stop in claims.unfinished():
                claims.line_up(segment, start, [key_of(segment, offset) for offset in range(start, stop)])
            claims.learned()
        if progress.leases is not None:
            self.append(Taken(at=self.now_ms), self.epoch)
            progress.take()
        return Coordinator(claims, self.epoch)

    # -- steps -------------------------------------------------------------------------------------------------

    def store(self, coordinator: Coordinator) -> None:
        claims = coordinator.claims
        if coordinator.storing is None:
            if claims.has_news:
                news = claims.take_news(self.now_ms)
                coordinator.asked, coordinator.exposing = [], coordinator.asked
                landed = self.append(news, coordinator.epoch)
                coordinator.storing = news, landed
                for acked in news.acked if landed else ():
                    self.acked_at_ms.update(((acked.segment, each), self.now_ms) for each in range(*acked[1:3]))
            return
        (news, landed), coordinator.storing = coordinator.storing, None
        if not landed:
            coordinator.ends = True
            return
        claims.stored(news)
        for aside in coordinator.exposing:
            # Whoever has asked may be gone.
            if self.chance.random() < 0.2:
                claims.put_back(aside)
            else:
                until_ms = self.now_ms + self.settings.lease_ms
                self.handed_out(
                    coordinator, claims.lease(aside, until_ms, scattered=self.chance.random() < 0.5), until_ms
                )
        for acked in news.acked:
            for offset in range(acked.start, acked.stop):
                self.accept(acked.segment, offset, acked.delivery)
        for dying in news.dying:
            for offset in range(dying.start, dying.stop):
                assert (dying.segment, offset) not in self.accepted, "acked and dead"
                assert (dying.segment, offset) in self.received, "nobody has received what dies"

    def bury(self, claims: QueueClaims) -> None:
        for each in claims.to_bury():
            self.letters.update((each.segment, each.sequence + i) for i in range(each.stop - each.start))
            claims.bury(each)

    def claim(self, coordinator: Coordinator) -> None:
        claims, most = coordinator.claims, self.chance.randint(1, 12)
        until_ms = self.now_ms + self.settings.lease_ms
        for segment, length in LENGTHS.items():
            progress = claims.progress.segments.get(segment)
            if progress is None:
                continue
            # Where the record of the last look may still be on its way.
            if (reached := claims._live[segment].reached) < length:
                self.raise_horizon(claims, segment, reached, length)
            elif not progress.has_left and segment not in claims._news.left:
                claims.leave(segment)
        grants = claims.hand_out(most, until_ms, scattered=self.chance.random() < 0.5)
        self.handed_out(coordinator, grants, until_ms)
        if not grants and not claims.is_storing and (aside := claims.set_aside(most)).ranges:
            coordinator.asked.append(aside)
            self.asked |= {
                (segment, offset) for segment, ranges in aside.ranges for each in ranges for offset in range(*each)
            }
        elif self.chance.random() < 0.2:
            claims.withdraw()

    def handed_out(self, coordinator: Coordinator, grants: list[Grant], until_ms: int) -> None:
        if self.settings.order == "key" and coordinator.epoch == self.epoch:
            self.check_order(grants)
        for grant in grants:
            self.hand_out(grant, until_ms, excused=coordinator.epoch != self.epoch)
        for claim, of_claim in groupby(grants, lambda grant: grant.claim):
            self.claimed.append((claim, [(grant.start, grant.stop) for grant in of_claim]))

    def check_order(self, grants: list[Grant]) -> None:
        """Whatever stands ahead of a message is done, or is handed out with it."""
        together = {(grant.segment, offset) for grant in grants for offset in range(grant.start, grant.stop)}
        for segment, offset in together:
            for ahead in range(offset):
                if key_of(segment, ahead) == key_of(segment, offset) is not None:
                    assert ahead in self.done.get(segment, ()) or (segment, ahead) in together, "out of order"

    def raise_horizon(self, claims: QueueClaims, segment: int, horizon: int, length: int) -> None:
        behind = min(horizon + self.chance.randint(1, 20), length)
        rested, expired = [], []
        if self.chance.random() < 0.3 and behind - horizon > 3:
            rested.append(Rested(segment, horizon, horizon + 1, self.now_ms + 4000))
        if self.chance.random() < 0.3 and behind - horizon > 3:
            expired.append(Done(segment, horizon + 2, horizon + 3))
        claims.raise_horizon(segment, 0, behind, rested=rested, expired=expired)
        for offset in range(horizon, behind):
            if offset not in {each.start for each in expired}:
                claims.line_up(segment, offset, [key_of(segment, offset)])

    def hand_out(self, grant: Grant, until_ms: int, *, excused: bool) -> None:
        for offset in range(grant.start, grant.stop):
            message = grant.segment, offset
            self.received.add(message)
            if excused:
                self.excused.add((*message, grant.delivery))
                continue
            self.hand_outs[message] += 1
            assert grant.delivery >= self.hand_outs[message], "told less than it is"
            assert message not in self.accepted, "handed out after its ack"
            assert self.running_until_ms.get(message, 0) <= self.now_ms, "with two consumers"
            self.running_until_ms[message] = until_ms
        done = {
            (segment, offset)
            for segment, ranges in self.done.items()
            for each in ranges.ranges()
            for offset in range(*each)
        }
        running = [m for m, until_ms in self.running_until_ms.items() if until_ms > self.now_ms and m not in done]
        assert len(running) <= self.settings.max_in_flight, "more than the limit are with consumers"

    def accept(self, segment: int, offset: int, delivery: int) -> None:
        message = segment, offset
        assert self.accepted.get(message, delivery) == delivery, "two acks are accepted"
        self.accepted[message] = delivery
        self.running_until_ms.pop(message, None)

    def work(self, coordinator: Coordinator) -> None:
        if not self.claimed:
            return
        claim, ranges = self.chance.choice(self.claimed[-20:] if self.chance.random() < 0.8 else self.claimed)
        start, stop = self.chance.choice(ranges)
        first = self.chance.randint(start, stop - 1)
        behind = self.chance.randint(first + 1, stop)
        what = self.chance.random()
        if what < 0.3:
            for outcome in coordinator.claims.ack_all(claim, ranges):
                self.answered(claim, outcome)
        elif what < 0.6:
            for outcome in coordinator.claims.ack(claim, first, behind):
                self.answered(claim, outcome)
        elif what < 0.8:
            why = self.chance.choice((GivingBack("no"),) * 3 + (GivingBack("no", dead=True), UNTOUCHED))
            due_ms = self.now_ms + self.chance.choice((0, 500))
            for outcome in coordinator.claims.release(claim, first, behind, why, due_ms=due_ms):
                if outcome.verdict is Verdict.LATER:
                    self.lease(claim, outcome, None)
        else:
            until_ms = self.now_ms + self.settings.lease_ms
            for outcome in coordinator.claims.extend(claim, first, behind, until_ms):
                if outcome.verdict is Verdict.ACCEPTED and coordinator.epoch == self.epoch:
                    self.lease(claim, outcome, until_ms)

    def answered(self, claim: Claim, outcome: Outcome) -> None:
        for offset in range(outcome.start, outcome.stop):
            message = claim.segment, offset
            if outcome.verdict is Verdict.ACCEPTED:
                self.accept(claim.segment, offset, claim.delivery)
            elif outcome.verdict is Verdict.LOST:
                recent = self.now_ms - self.acked_at_ms.get(message, 0) < self.settings.lease_ms
                assert not (recent and self.accepted.get(message) == claim.delivery), "an accepted ack is refused"

    def lease(self, claim: Claim, outcome: Outcome, until_ms: int | None) -> None:
        for offset in range(outcome.start, outcome.stop):
            if (claim.segment, offset, claim.delivery) not in self.excused:
                self.running_until_ms[claim.segment, offset] = until_ms or 0

    def befall(self, coordinator: Coordinator) -> None:
        what = self.chance.random()
        if what < 0.4:
            coordinator.ends = True  # killed
        elif what < 0.7 and coordinator.epoch == self.epoch and coordinator.storing is None:
            if not coordinator.claims.has_news:
                record = Leases(at=self.now_ms, leases=coordinator.claims.written_down(self.now_ms))
                self.append(record, coordinator.epoch)
                coordinator.ends = True
        elif what < 0.8 and self.epoch == coordinator.epoch:
            snapshot = Snapshot(at=self.now_ms, state=coordinator.claims.progress.to_plain())
            if coordinator.storing is None:
                self.append(snapshot, coordinator.epoch)
        else:
            self.epoch += 1
            self.coordinators.append(self.taken_over())

    def run(self, steps: int, *, calm: bool = False) -> None:
        for _ in range(steps):
            self.coordinators = [each for each in self.coordinators if not each.ends]
            if not any(each.epoch == self.epoch for each in self.coordinators):
                self.epoch += 1
                self.coordinators.append(self.taken_over())
            coordinator = self.chance.choice(self.coordinators)
            what = self.chance.random()
            if what < 0.3:
                self.bury(coordinator.claims)
                self.store(coordinator)
            elif what < 0.5:
                self.claim(coordinator)
            elif what < 0.8:
                self.work(coordinator)
            elif what < 0.97 or calm:
                self.now_ms += self.chance.choice((1, 100, 1000))
                coordinator.claims.tick(self.now_ms, self.now_ms)
            else:
                self.befall(coordinator)


@pytest.mark.parametrize("order", ["none", "key"])
@pytest.mark.parametrize("seed", range(12))
def test_promises_are_kept(seed: int, order: Literal["none", "key"], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lines, "KEY_BATCH", 1 + seed % 4)
    settings = SETTINGS.model_copy(update={"order": order, "max_deliveries": 1 + seed % 4})
    world = World(random.Random(seed), settings)
    world.run(STEPS)
    # In peace, everything gets done.
    world.run(6 * STEPS, calm=True)
    progress = added_up(world.log)
    assert not progress.segments, progress.to_plain()
    news = [record for record in map(from_json, world.log) if isinstance(record, Progress)]
    acked = [
        ((a.segment, offset), a.delivery) for each in news for a in each.acked for offset in range(a.start, a.stop)
    ]
    assert len(dict(acked)) == len(acked) and world.accepted.items() <= dict(acked).items()
    assert len(acked) + progress.dead_count + progress.expired_count == sum(LENGTHS.values())
    assert progress.dead_count == len({sequence for _, sequence in world.letters})
    assert progress.next_sequence == progress.dead_count
