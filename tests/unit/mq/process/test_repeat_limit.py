"""How many lines the log has where the same happens again and again, and that none goes without being counted."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mq.process.repeat_limit import MOST_OF_NAME, MOST_OF_SUBJECT, WINDOW_SECONDS, RepeatLimit, Suppressed


def test_the_first_few_about_a_subject_are_written_and_the_others_counted() -> None:
    limit = RepeatLimit()
    written = [limit.admits("put_slow", "key=a", 0.0) for _ in range(1000)]
    assert written == [True] * MOST_OF_SUBJECT + [False] * (1000 - MOST_OF_SUBJECT)
    assert limit.admits("put_slow", "key=b", 1.0) and limit.admits("segment_lost", "key=a", 1.0)
    assert limit.ended(WINDOW_SECONDS - 0.1) == []
    assert limit.ended(WINDOW_SECONDS) == [Suppressed("put_slow", "key=a", 1000 - MOST_OF_SUBJECT)]
    assert limit.ended(WINDOW_SECONDS) == []
    assert limit.admits("put_slow", "key=a", WINDOW_SECONDS)


def test_ever_new_subjects_are_bounded_and_kept_nowhere() -> None:
    limit = RepeatLimit()
    written = [limit.admits("request_failed", f"path=/{n}", 0.0) for n in range(10_000)]
    assert sum(written) == MOST_OF_NAME
    assert len(limit._windows) <= MOST_OF_NAME + 1
    assert limit.ended(WINDOW_SECONDS) == [Suppressed("request_failed", "", 10_000 - MOST_OF_NAME)]


LINES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "x", "y"]), st.floats(0, 30)), max_size=200)


@given(LINES)
def test_every_line_is_written_or_counted(lines: Sequence[tuple[str, str, float]]) -> None:
    limit, now_seconds, written, counted = RepeatLimit(), 0.0, 0, 0
    for name, subject, pause_seconds in lines:
        now_seconds += pause_seconds
        counted += sum(each.lines for each in limit.ended(now_seconds))
        written += limit.admits(name, subject, now_seconds)
    counted += sum(each.lines for each in limit.ended(now_seconds + WINDOW_SECONDS))
    assert written + counted == len(lines)
