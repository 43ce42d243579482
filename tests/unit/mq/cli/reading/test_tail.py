"""The start of the last messages, found by positions of times, on a topic whose broker is a list."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidmq import AsyncClient
from braidmq.models import Segment, SegmentOffset, TopicPosition
from filer.times import LATEST_US, microseconds
from filer.topic.positions import from_marker, to_marker
from mq.cli.reading.tail import tail_start

TOPIC = "t"
NOW_US = 1_700_000_000_000_000


class Listed:
    """A client of a topic without transitions: for each open segment the ascending times of its messages."""

    def __init__(self, times: Sequence[Sequence[int]]) -> None:
        self.times = [sorted(each) for each in times]
        self.calls = 0

    async def topic(self, _: str) -> Any:
        width = 65_536 // len(self.times)
        segments = [
            Segment(segment=name, range=(name * width, (name + 1) * width), state="open")
            for name in range(len(self.times))
        ]
        return type("Found", (), {"segments": segments})

    async def position(self, _: str, *, from_: str | datetime) -> TopicPosition:
        self.calls += 1
        if from_ == "latest":
            return self._at([len(each) for each in self.times])
        since_us = 0 if from_ == "earliest" else microseconds(cast("datetime", from_))
        return self._at([int(np.searchsorted(each, since_us)) for each in self.times])

    def _at(self, offsets: Sequence[int]) -> TopicPosition:
        positions = tuple(SegmentOffset(segment=name, offset=offset) for name, offset in enumerate(offsets))
        return TopicPosition(topic=TOPIC, marker=to_marker(TOPIC, dict(enumerate(offsets))), positions=positions)

    def rows_from(self, marker: str) -> pa.Table:
        """What a reader finds from the marker on, segment by segment."""
        start = from_marker(TOPIC, marker)
        rows = [(name, o) for name, each in enumerate(self.times) for o in range(start[name], len(each))]
        segments, offsets = ([each[i] for each in rows] for i in (0, 1))
        return pa.table({"segment": np.array(segments, np.int64), "_offset": np.array(offsets, np.int64)})


async def tail(listed: Listed, count: int) -> list[int]:
    """The times of the messages that are read."""
    end = await listed.position(TOPIC, from_="latest")
    found = await tail_start(cast("AsyncClient", listed), TOPIC, count, end, NOW_US)
    rows = listed.rows_from(found.marker)
    rows = rows if found.skip is None else found.skip.apply(rows)
    return sorted(listed.times[row["segment"]][row["_offset"]] for row in rows.to_pylist())


# Close together, so that many are the same; long ago; and ahead of this machine's clock.
TIMES = st.one_of(
    st.integers(NOW_US - 30, NOW_US),
    st.integers(0, NOW_US),
    st.integers(NOW_US, NOW_US + 10**9),
    st.just(LATEST_US),
)


@given(st.lists(st.lists(TIMES, max_size=12), min_size=1, max_size=4), st.integers(0, 60))
async def test_the_tail_is_what_has_the_latest_times(times: list[list[int]], count: int) -> None:
    listed = Listed(times)
    everything = sorted(time for each in times for time in each)
    assert await tail(listed, count) == everything[max(0, len(everything) - count) :]


@pytest.mark.parametrize("age_us", [1, 10**6, 10**9, 10**15])
async def test_few_questions_find_it_however_old_the_topic_is(age_us: int) -> None:
    listed = Listed([range(NOW_US - age_us - 10_000, NOW_US - age_us), [NOW_US - age_us] * 5])
    assert len(await tail(listed, 7)) == 7
    assert listed.calls < 80
