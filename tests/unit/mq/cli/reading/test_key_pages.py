"""Reading one key, from a client that is a script."""

from typing import Any, cast

import pyarrow as pa
import pytest

from braidmq import AsyncClient, NoConnection, SegmentNotFound, SegmentPage
from braidmq.models import Segment
from mq.cli.failures import CommandFailed
from mq.cli.reading.key_pages import KeyPages, key_position
from tests.support.instant_clock import InstantClock

KEY = b"k"
SEGMENTS = [
    Segment(segment=0, range=(0, 65_536), state="sealed", end_offset=2, successors=(1,)),
    Segment(segment=1, range=(0, 65_536), state="open", predecessors=(0,)),
]


def page(*keys: str, at: int, end: int | None = None) -> SegmentPage:
    rows = pa.table(
        {"key": pa.array([each.encode() for each in keys], pa.binary()), "_offset": list(range(at, at + len(keys)))}
    )
    return SegmentPage(rows, at + len(keys), end)


class Script:
    """Gives one answer after the other to reads of segments, and says what was asked."""

    def __init__(self, *answers: SegmentPage | Exception, segments: Any = SEGMENTS) -> None:
        self.answers, self.segments = list(answers), segments
        self.asked: list[tuple[int, int]] = []

    async def segment_page(self, _: str, segment: int, *, offset: int, **__: Any) -> SegmentPage:
        self.asked.append((segment, offset))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def topic(self, _: str) -> Any:
        return type("Found", (), {"segments": self.segments})


def reading(script: Script, *, follow: bool = False, patient: bool = False) -> KeyPages:
    client = cast("AsyncClient", script)
    return KeyPages(client, InstantClock(), "t", KEY, (0, 0), follow=follow, patient=patient)


async def test_it_goes_from_a_sealed_segment_to_the_one_that_follows_and_ends_there() -> None:
    script = Script(page("k", "x", at=0, end=2), page(at=2, end=2), page("x", "k", at=0), page(at=2))
    pages = reading(script)
    found = []
    while (rows := await pages.next_page()) is not None:
        found += rows["_offset"].to_pylist()
    assert found == [0, 1]
    assert script.asked == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert pages.positions == {1: 2}


async def test_it_waits_for_brokers_that_are_away_only_where_it_is_patient() -> None:
    away = NoConnection()
    patient = Script(away, away, page("k", at=0))
    rows = await reading(patient, follow=True, patient=True).next_page()
    assert rows is not None and rows.num_rows == 1
    with pytest.raises(NoConnection):
        await reading(Script(away), follow=True).next_page()
    with pytest.raises(SegmentNotFound):
        await reading(Script(SegmentNotFound()), follow=True, patient=True).next_page()


async def test_a_sealed_segment_that_nothing_follows_is_told() -> None:
    with pytest.raises(CommandFailed, match="no segment follows segment 0"):
        await reading(Script(page(at=0, end=0), segments=SEGMENTS[:1])).next_page()


def test_a_position_of_the_topic_names_where_the_key_goes_on() -> None:
    assert key_position(SEGMENTS, KEY, {0: 1}) == (0, 1)
    assert key_position(SEGMENTS, KEY, {0: 2, 1: 5}) == (1, 5)
    with pytest.raises(CommandFailed, match="run this again"):
        key_position(SEGMENTS, KEY, {7: 0})
