"""A repeated ack or release is answered as the first one, for some time after that was stored."""

import json

import pytest

from groups.queue.claims import GivingBack, QueueClaims, Verdict
from groups.queue.leases import Claim
from groups.queue.progress import QueueProgress
from groups.queue.recent_decisions import KEPT_MS, RecentDecisions
from groups.records import Acked, Progress, Reached, Released
from groups.settings import GroupSettings

CLAIM = Claim(0, 0, 1)
OUTAGE_MS = 130_000


def decided(at_ms: int) -> Progress:
    """Four messages, of which two were acked and two released at that time."""
    return Progress(at=at_ms, reached=[Reached(0, 0, 5)], acked=[Acked(0, 0, 2, 1)], released=[Released(0, 2, 4, 1)])


def repeated(progress: QueueProgress) -> list[Verdict]:
    claims = QueueClaims(progress, now_ms=0)
    back = claims.release(CLAIM, 2, 4, GivingBack("no"), due_ms=0)
    return [outcome.verdict for outcome in (*claims.ack(CLAIM, 0, 2), *back)]


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_the_store_refused_for_minutes_is_known_when_it_is_repeated(snapshot: bool) -> None:
    """The record is as old as the outage when it is stored, and so the next one is made that much later."""
    progress = QueueProgress("g", GroupSettings(lease_seconds=10), {0: 0})
    progress.apply(decided(1_000))
    if snapshot:
        progress = QueueProgress.from_plain(json.loads(json.dumps(progress.to_plain())))
    progress.apply(Progress(at=1_000 + OUTAGE_MS, acked=[Acked(0, 4, 5, 1)]))
    progress.apply(Progress(at=1_000 + OUTAGE_MS + KEPT_MS - 1))
    assert repeated(progress)[0] is Verdict.ACCEPTED
    assert progress.recent_releases.within(0, 2, 4, 1).ranges() == [(2, 4)]


def test_they_are_forgotten_in_the_end() -> None:
    recent = RecentDecisions()
    recent.rotate(1_000, 0)
    recent.add(0, 1, [(0, 2)])
    for at_ms in (2_000, 2_000 + 2 * KEPT_MS, 2_000 + 4 * KEPT_MS):
        recent.rotate(at_ms, 0)
    assert not recent.within(0, 0, 2, 1)


def test_a_snapshot_tells_coordinators_of_earlier_versions_all_there_is() -> None:
    recent = RecentDecisions()
    recent.rotate(1_000, 0)
    recent.add(0, 1, [(0, 2)])
    plain = recent.to_plain()
    del plain["last"]
    assert RecentDecisions.from_plain(plain).within(0, 0, 2, 1).ranges() == [(0, 2)]
