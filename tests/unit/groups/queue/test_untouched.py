"""Deliveries on which nobody had begun to work do not count for `max_deliveries`."""

from groups.queue.claims import GivingBack, Grant, QueueClaims
from groups.queue.leases import Claim
from groups.queue.progress import QueueProgress
from groups.records import from_json, to_json
from groups.settings import GroupSettings

SETTINGS = GroupSettings(mode="queue", max_deliveries=2)
UNTOUCHED, FAILED = GivingBack("stopped", untouched=True), GivingBack("failed")


class Group:
    """Four messages of a segment, whose records are stored at once, as they are read again."""

    def __init__(self) -> None:
        self.claims = QueueClaims(QueueProgress("g", SETTINGS, {0: 0}), now_ms=0)
        self.claims.raise_horizon(0, 0, 4)
        self.store()

    def store(self) -> None:
        news = self.claims.take_news(0)
        assert from_json(to_json(news)) == news
        self.claims.stored(news)

    def hand_out(self, most: int) -> list[Grant]:
        """Grants of as many messages, once it is on record that they are exposed."""
        aside = self.claims.set_aside(most)
        self.store()
        return self.claims.lease(aside, 1_000)

    def give_back(self, why: GivingBack, *ranges: tuple[int, int]) -> list[Grant]:
        """Hand all out, give some back, and ack nothing."""
        grants = self.hand_out(10)
        for grant in grants:
            for start, stop in ranges or ((grant.start, grant.stop),):
                first, behind = max(start, grant.start), min(stop, grant.stop)
                if first < behind:
                    claim = Claim(grant.segment, grant.start, grant.delivery)
                    self.claims.release(claim, first, behind, why, due_ms=0)
        self.store()
        return grants


def test_what_was_given_back_untouched_has_as_many_chances_as_before() -> None:
    group = Group()
    for delivery in (1, 2, 3):
        assert group.give_back(UNTOUCHED) == [Grant(0, 0, 4, delivery)]
    assert group.give_back(FAILED) == [Grant(0, 0, 4, 4)] and not group.claims.to_bury()
    group.give_back(FAILED)
    (dying,) = group.claims.to_bury()
    assert (dying.start, dying.stop, dying.delivery) == (0, 4, 5)
    group.claims.bury(dying)
    group.store()
    assert not group.claims.progress.segments[0].untouched and group.claims.progress.dead_count == 4


def test_only_those_that_were() -> None:
    group = Group()
    grants = [group.hand_out(1)[0] for _ in range(4)]
    for offset in range(4):
        why, grant = UNTOUCHED if offset < 2 else FAILED, grants[offset]
        group.claims.release(Claim(0, grant.start, 1), grant.start, grant.stop, why, due_ms=0)
    group.store()
    group.give_back(FAILED)
    assert [(each.start, each.stop) for each in group.claims.to_bury()] == [(2, 4)]


def test_the_next_coordinator_knows() -> None:
    group = Group()
    group.give_back(UNTOUCHED)
    plain = group.claims.progress.to_plain()
    group.claims = QueueClaims(QueueProgress.from_plain(plain), now_ms=0)
    group.claims.tick(1_000_000, 1_000_000)
    group.store()
    group.give_back(FAILED)
    assert group.claims.progress.segments[0].untouched[1].ranges() == [(0, 4)]
    del plain["segments"][0][1]["untouched"]  # as coordinators wrote it before
    assert QueueProgress.from_plain(plain).segments[0].untouched == {}
