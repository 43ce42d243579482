"""Decisions about members and segments, one safeguard after the other."""

from filer.slots import SLOTS
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from groups.records import Membership, Reset
from groups.settings import GroupSettings
from groups.stream.members import Hold, StreamMembers, Told, Verdict
from groups.stream.progress import MOST_ENDED_EPOCHS, StreamProgress

SETTINGS = GroupSettings(mode="stream", session_seconds=10)
SESSION_MS = 10_000
HALF = SLOTS // 2
NOTHING = Told([], [])


def topic(*segments: Segment) -> TopicState:
    last = max(each.id for each in segments)
    return TopicState(
        topic="t", created_us=0, version=1, next_segment=last + 1, config=TopicConfig(), segments=segments
    )


def open_segment(segment_id: int, start: int, stop: int, *predecessors: int) -> Segment:
    return Segment(
        id=segment_id,
        start_slot=start,
        stop_slot=stop,
        brokers=("b",),
        opened_us=0,
        reason="create",
        predecessors=predecessors,
    )


def sealed(segment: Segment, end: int, *successors: int) -> Segment:
    return segment.model_copy(update={"state": "sealed", "end_offset": end, "successors": successors})


LOW, HIGH = open_segment(0, 0, HALF), open_segment(1, HALF, SLOTS)


class Group:
    """A group of two segments, unless told otherwise, whose records are stored at once."""

    def __init__(self, state: TopicState | None = None) -> None:
        self.state = state or topic(LOW, HIGH)
        self.now_ms = 0
        positions = {each.id: 0 for each in self.state.segments if not each.predecessors}
        self.members = StreamMembers(StreamProgress("g", SETTINGS, positions), now_ms=0)

    def settle(self) -> None:
        for _ in range(5):
            self.members.tick(self.now_ms)
            self.members.plan(self.state, {})
            while self.members.has_news:
                self.members.stored(self.members.take_news(self.now_ms))

    def join(self, member: str) -> int:
        start = self.members.join(member, self.now_ms)
        assert start is not None
        self.settle()
        return start

    def beat(self, member: str, start: int, *released: tuple[int, int]) -> Told | Verdict:
        verdict = self.members.hear(member, start, released, self.now_ms)
        self.settle()
        return self.members.told(member, start) if verdict is Verdict.ACCEPTED else verdict

    def commit(self, segment: int, epoch: int, position: int) -> Verdict:
        known = self.members.progress.segments.get(segment)
        verdict = self.members.commit(known.member if known else "", segment, epoch, position)
        self.settle()
        return verdict

    def fail_over(self) -> None:
        self.members = StreamMembers(self.members.progress, now_ms=self.now_ms)


def test_a_segment_is_let_go_before_another_takes_it() -> None:
    group = Group()
    a = group.join("a")
    assert group.beat("a", a) == Told([Hold(0, 1, 0), Hold(1, 1, 0)], [])
    b = group.join("b")
    assert group.beat("b", b) == NOTHING
    told = group.beat("a", a)
    assert isinstance(told, Told) and len(told.holds) == 1
    (moving,) = told.release
    # Meanwhile its commits count, and nothing but its word lets it go: not a heartbeat that leaves it out.
    assert group.commit(*moving, 5) is Verdict.LATER
    assert group.beat("a", a) == told and group.beat("b", b) == NOTHING
    group.beat("b", b, moving)  # not its own to release
    assert group.beat("b", b) == NOTHING
    assert group.beat("a", a, moving) == Told(told.holds, [])
    assert group.beat("b", b) == Told([Hold(moving[0], 2, 5)], [])
    # Only the last epoch counts; a repeat is answered as the first time.
    assert group.commit(*moving, 5) is Verdict.ACCEPTED and group.commit(*moving, 6) is Verdict.FENCED
    assert group.members.progress.positions()[moving[0]] == 5


def test_a_member_that_comes_back_keeps_its_segments_under_new_epochs() -> None:
    group = Group()
    a, b = group.join("a"), group.join("b")
    (moving,) = group.members.told("a", a).release
    group.beat("a", a, moving)
    ((kept, _, _),) = group.members.told("a", a).holds
    again = group.join("a")
    assert again > b and group.beat("a", again) == Told([Hold(kept, 2, 0)], [])
    assert group.beat("a", a) is Verdict.FENCED and group.commit(kept, 1, 3) is Verdict.FENCED
    assert group.beat("b", b) == Told([Hold(moving[0], 2, 0)], [])


def test_a_session_that_ends_frees_segments_and_a_late_heartbeat_does_not_renew_it() -> None:
    group = Group()
    a = group.join("a")
    group.now_ms = SESSION_MS
    group.members.tick(group.now_ms)
    # Its end is decided: until that is stored nobody decides about it, and it gets no answer.
    group.members.touch("a", a, group.now_ms)
    assert group.members.hear("a", a, (), group.now_ms) is Verdict.WAIT and group.members.awaits("a")
    assert group.members.join("a", group.now_ms) is None
    group.settle()
    assert group.beat("a", a) is Verdict.FENCED
    # What it did before is not lost, as long as nobody else has the segment.
    assert group.commit(0, 1, 4) is Verdict.LATER
    b = group.join("b")
    assert group.beat("b", b) == Told([Hold(0, 2, 4), Hold(1, 2, 0)], [])
    assert group.commit(0, 1, 5) is Verdict.FENCED


def test_a_coordinator_that_takes_over_gives_everybody_a_session() -> None:
    group = Group()
    a = group.join("a")
    group.now_ms = SESSION_MS - 1
    group.beat("a", a)
    group.now_ms = 2 * SESSION_MS
    group.fail_over()
    b = group.join("b")
    group.now_ms = 3 * SESSION_MS - 1
    assert group.beat("b", b) == NOTHING
    group.now_ms += 1
    group.settle()
    assert group.beat("b", b) == Told([Hold(0, 2, 0), Hold(1, 2, 0)], [])


def test_a_successor_waits_for_its_predecessors() -> None:
    group = Group()
    a = group.join("a")
    merged = open_segment(2, 0, SLOTS, 0, 1)
    group.state = topic(sealed(LOW, 3, 2), sealed(HIGH, 4, 2), merged)
    group.settle()
    assert group.commit(0, 1, 3) is Verdict.LATER
    assert group.members.progress.positions() == {0: 3, 1: 0}
    assert group.commit(1, 1, 4) is Verdict.LATER
    group.settle()
    assert group.beat("a", a) == Told([Hold(2, 1, 0)], [])
    # The last commit of a segment that is left may be repeated too, for a session.
    assert group.commit(1, 1, 4) is Verdict.ACCEPTED and group.commit(1, 1, 5) is Verdict.FENCED
    group.now_ms = 3 * SESSION_MS
    group.members.progress.apply(Membership(at=group.now_ms))
    assert not group.members.progress.left


def test_retention_that_overtakes_is_counted_and_the_holder_goes_on() -> None:
    group = Group()
    a = group.join("a")
    group.state = topic(LOW.model_copy(update={"start_offset": 7}), HIGH)
    group.settle()
    assert group.members.progress.skipped_count == 7
    assert group.beat("a", a) == Told([Hold(0, 1, 7), Hold(1, 1, 0)], [])
    assert group.commit(0, 1, 5) is Verdict.ACCEPTED and group.members.progress.positions()[0] == 7
    # A whole segment that is gone is left, and its successor entered.
    gone = sealed(open_segment(2, 0, HALF, 0), 9, 3)
    group.state = topic(HIGH, gone, open_segment(3, 0, HALF, 2))
    group.settle()
    assert group.members.progress.positions() == {1: 0, 2: 0}


def test_a_state_that_is_older_than_the_positions_says_nothing_about_them() -> None:
    group = Group()
    group.members = StreamMembers(StreamProgress("g", SETTINGS, {0: 3, 5: 2}), now_ms=0)
    group.settle()
    assert group.members.progress.positions() == {0: 3, 5: 2}


def test_what_nobody_has_heard_of_is_newer() -> None:
    group = Group()
    a = group.join("a")
    assert group.beat("a", a + 1) is Verdict.NEWER and group.commit(9, 1, 0) is Verdict.NEWER
    assert group.commit(0, 2, 0) is Verdict.NEWER and group.commit(0, 0, 1) is Verdict.FENCED


def test_whoever_leaves_frees_segments_and_may_say_so_twice() -> None:
    group = Group()
    a, b = group.join("a"), group.join("b")
    assert group.members.leave("a", a) is Verdict.LATER and group.members.leave("a", a) is Verdict.WAIT
    group.settle()
    assert group.members.leave("a", a) is Verdict.ACCEPTED
    assert group.beat("b", b) == Told([Hold(0, 2, 0), Hold(1, 2, 0)], [])


def test_another_member_cannot_commit() -> None:
    group = Group()
    group.join("a")
    assert group.members.commit("b", 0, 1, 4) is Verdict.FENCED and group.commit(0, 1, 4) is Verdict.LATER


def test_no_commit_from_before_a_reset_counts() -> None:
    group = Group()
    a = group.join("a")
    assert group.commit(0, 1, 4) is Verdict.LATER
    group.members = StreamMembers(
        group.members.progress.reset(Reset(at=0, id="h", positions=[(0, 1), (1, 0)])), now_ms=group.now_ms
    )
    assert group.commit(0, 1, 9) is Verdict.FENCED and group.commit(0, 2, 9) is Verdict.FENCED
    assert group.beat("a", a) == Told([Hold(0, 3, 1), Hold(1, 3, 0)], [])
    # Nor does one of a segment that is entered again.
    merged = open_segment(2, 0, SLOTS, 0, 1)
    group.state = topic(sealed(LOW, 2, 2), sealed(HIGH, 0, 2), merged)
    assert group.commit(0, 3, 2) is Verdict.LATER
    assert group.beat("a", a) == Told([Hold(2, 3, 0)], []) and group.commit(2, 1, 5) is Verdict.FENCED


def test_epochs_that_are_over_are_bounded() -> None:
    group = Group()
    for _ in range(2 * MOST_ENDED_EPOCHS):
        group.join("a")
    segment = group.members.progress.segments[0]
    assert len(segment.accepted) <= MOST_ENDED_EPOCHS + 2 and segment.epoch == 2 * MOST_ENDED_EPOCHS
    assert group.commit(0, segment.epoch - 1, 0) is Verdict.ACCEPTED and group.commit(0, 1, 0) is Verdict.FENCED


def test_a_snapshot_tells_everything() -> None:
    group = Group()
    group.join("a")
    group.commit(0, 1, 4)
    group.join("a")
    plain = group.members.progress.to_plain()
    assert StreamProgress.from_plain(plain).to_plain() == plain


def test_a_process_in_whose_place_another_one_has_joined_is_told() -> None:
    group = Group()
    members = group.members
    first = members.join("a", 0, "one")
    group.settle()
    assert first is not None and members.hear("a", first, (), 0, "one") is Verdict.ACCEPTED
    # Whoever repeats a join whose answer was lost is itself; before the next start is stored, nobody is replaced.
    again = members.join("a", 0, "one")
    assert again is not None and not members.is_replaced("a", first, "one")
    group.settle()
    assert not members.is_replaced("a", first, "one") and members.hear("a", first, (), 0) is Verdict.FENCED
    other = members.join("a", 0, "other")
    assert other is not None and not members.is_replaced("a", again, "one")
    group.settle()
    assert members.is_replaced("a", again, "one") and not members.is_replaced("a", other, "other")
    # Who does not say what it is, or is not known, joins again.
    assert not members.is_replaced("a", again, "")
    # The next coordinator learns it when the one that lives is heard.
    after = StreamMembers(members.progress, now_ms=0)
    assert not after.is_replaced("a", again, "one")
    assert after.hear("a", other, (), 0, "other") is Verdict.ACCEPTED and after.is_replaced("a", again, "one")
    # Nobody is in the place of a member that is gone.
    assert members.leave("a", other) is Verdict.LATER
    group.settle()
    assert not members.is_replaced("a", again, "one")
