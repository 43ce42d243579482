import pytest

from filer.durations import BOUNDS_SECONDS, Durations


def test_the_bounds_go_from_a_millisecond_to_half_a_minute() -> None:
    assert BOUNDS_SECONDS[0] == 0.001
    assert BOUNDS_SECONDS[-1] == 30
    assert list(BOUNDS_SECONDS) == sorted(set(BOUNDS_SECONDS))


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (0.001, 0), (0.0011, 1), (0.3, BOUNDS_SECONDS.index(0.5)), (30.0, 13), (31.0, 14)],
)
def test_a_call_counts_from_the_first_bound_that_it_does_not_exceed(seconds: float, bucket: int) -> None:
    durations = Durations()
    durations.observe(seconds)
    assert list(durations.cumulated()) == [0] * bucket + [1] * (len(BOUNDS_SECONDS) + 1 - bucket)


def test_the_last_is_how_many_there_were() -> None:
    durations = Durations()
    for seconds in (0.002, 0.2, 20.0, 200.0):
        durations.observe(seconds)
    assert durations.cumulated()[-1] == 4
    assert durations.sum_seconds == pytest.approx(220.202)
