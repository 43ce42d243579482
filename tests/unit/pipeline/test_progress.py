import pytest

from filer.clock import ManualClock
from pipeline.output import duration
from pipeline.tasks import ProgressLines, Step


async def test_a_line_every_five_seconds_with_the_rate_and_the_end_of_the_step() -> None:
    clock = ManualClock()
    lines = ProgressLines(clock)
    told: dict[int, str] = {}
    for second in range(1, 26):
        await clock.advance(1)
        step = Step((3,), 0, 2, 8) if second < 10 else Step((4, 5), second - 10, 1, 20)
        if second > 22:
            step = Step((), 0, 0, 0)
        if (line := lines.line(step)) is not None:
            told[second] = line
    assert told == {
        5: "0 of 8 tasks done, 2 running; 5 s so far",
        10: "0 of 20 tasks done, 1 running; 10 s so far",
        15: "5 of 20 tasks done, 1 running, 60.0 per minute, about 15 s left in this step; 15 s so far",
        20: "10 of 20 tasks done, 1 running, 60.0 per minute, about 10 s left in this step; 20 s so far",
        25: "no task of Spark runs right now; 25 s so far",
    }


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "2 h 0 min"), (9000, "2 h 30 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
