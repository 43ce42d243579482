"""What must not happen to a topic.json is seen; what may happen is not complained of."""

import pytest

from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState
from leader.transitions import SealedEnd, begin_deletion, begin_replacement, finished, new_topic, recreated
from tests.support.topic.topic_history import TopicHistory, broken_succession


def brokers_for(number: int) -> tuple[str, ...]:
    return (f"b{number}",)


def newer(state: TopicState | None, **changes: object) -> TopicState:
    assert state is not None
    return state.model_copy(update={"version": state.version + 1, **changes})


FIRST = new_topic("t", TopicConfig(), 2, brokers_for, now_us=1)
ROLLING = newer(begin_replacement(FIRST, [0], brokers_for, "roll", now_us=2))
assert ROLLING.transition is not None
ROLLED = newer(finished(ROLLING, ROLLING.transition, {0: SealedEnd(5)}, now_us=3))
DELETING = newer(begin_deletion(ROLLED, now_us=4))
assert DELETING.transition is not None
DELETED = newer(finished(DELETING, DELETING.transition, {1: SealedEnd(0), 2: SealedEnd(3)}, now_us=5))
AGAIN = recreated(DELETED, TopicConfig(), 1, brokers_for, now_us=6)
LIFE = [FIRST, ROLLING, ROLLED, DELETING, DELETED, AGAIN]


def complaints(*states: TopicState) -> list[str]:
    history = TopicHistory("t")
    for state in states:
        history.record(state.to_json())
    return history.complaints


def test_a_life_is_sound() -> None:
    assert complaints(*LIFE) == []


def test_a_life_is_sound_whichever_versions_were_missed() -> None:
    assert all(complaints(LIFE[i], LIFE[j]) == [] for i in range(len(LIFE)) for j in range(i, len(LIFE)))


def test_it_counts_versions_not_looks() -> None:
    history = TopicHistory("t")
    for state in (FIRST, FIRST, ROLLING, ROLLING):
        history.record(state.to_json())
    assert history.versions == 2


def test_a_version_that_breaks_an_invariant() -> None:
    assert complaints(newer(FIRST, segments=FIRST.segments[:1])) == ["t: version 2: open_ranges_tile"]


def test_what_is_no_topic() -> None:
    history = TopicHistory("t")
    history.record(b"{}")
    (complaint,) = history.complaints
    assert complaint.startswith("t: topic.json is damaged")


def change(topic: TopicState, segment: int, **changes: object) -> TopicState:
    segments = tuple(s.model_copy(update=changes) if s.id == segment else s for s in topic.segments)
    return newer(topic, segments=segments)


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        (ROLLED, ROLLING, "follows version 3"),
        (ROLLED, newer(ROLLED, next_segment=2), "goes back from 3 to 2"),
        (ROLLED, change(ROLLED, 0, end_offset=6), "segment 0 was sealed at 5 and is sealed 6"),
        (ROLLED, change(ROLLED, 0, state="open", end_offset=None), "segment 0 was sealed at 5 and is open None"),
        (ROLLED, change(ROLLED, 2, brokers=("other",)), "segment 2: brokers was ('b0',)"),
        (ROLLING, change(ROLLED, 2, stop_slot=7), "segment 2: stop_slot"),
        (change(ROLLED, 0, start_offset=4), newer(change(ROLLED, 0)), "segment 0 began at 4 and begins at 0"),
        (DELETED, newer(AGAIN, segments=(*ROLLED.segments[:1], *AGAIN.segments)), "segment 0 is back"),
    ],
)
def test_what_may_not_follow(before: TopicState, after: TopicState, part: str) -> None:
    assert any(part in complaint for complaint in broken_succession(before, after))


def test_each_version_is_held_against_the_one_before() -> None:
    changed = change(ROLLED, 0, end_offset=6)
    assert complaints(ROLLED, changed) == [f"t: version {changed.version}: segment 0 was sealed at 5 and is sealed 6"]
