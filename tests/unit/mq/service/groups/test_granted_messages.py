"""Which messages of grants are read together, and what becomes of those that are gone or do not fit."""

import random
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
import pytest

from groups.queue.claims import Grant
from mq.service.groups.granted_messages import MOST_GAP_ROWS, Granted, read_granted
from mq.topic.run import Run
from mq.topic.topic_reader import TopicReader

ROW_BYTES = 8


@dataclass
class Reader:
    """Segments whose messages say where they are. `gone` are none any more; a page ends before them."""

    gone: set[tuple[int, int]] = field(default_factory=set)
    end: int = 100_000
    reads: list[tuple[int, int, int]] = field(default_factory=list)

    async def read_segment(self, segment: int, offset: int, *, max_rows: int, max_bytes: int) -> Run:
        self.reads.append((segment, offset, max_rows))
        while (segment, offset) in self.gone:
            offset += 1
        most = min(max_rows, max(max_bytes // ROW_BYTES, 1), max(self.end - offset, 0))
        offsets = list(range(offset, offset + most))
        cut = next((index for index, each in enumerate(offsets) if (segment, each) in self.gone), len(offsets))
        table = pa.table({"_offset": pa.array(offsets[:cut], pa.int64())})
        return Run(segment, offset + cut, table, cut * ROW_BYTES)


@dataclass
class Told:
    """What was lost, and what was taken back."""

    lost: set[tuple[int, int]] = field(default_factory=set)
    back: set[tuple[int, int]] = field(default_factory=set)

    def lose(self, grant: Grant, start: int, stop: int) -> None:
        self.lost |= {(grant.segment, offset) for offset in range(start, stop)}

    def take_back(self, grant: Grant, start: int) -> None:
        self.back |= {(grant.segment, offset) for offset in range(start, grant.stop)}


async def read(reader: Reader, grants: list[Grant], max_bytes: int = 1_000_000) -> tuple[Granted, Told]:
    told = Told()
    granted = await read_granted(cast(TopicReader, reader), grants, max_bytes, lose=told.lose, take_back=told.take_back)
    return granted, told


def messages(granted: Granted) -> list[tuple[Grant, int]]:
    """Each message that was read, with its grant."""
    found: list[tuple[Grant, int]] = []
    for page in granted.pages:
        owners = [granted.grants[piece.number] for piece in page.pieces for _ in range(piece.rows)]
        found += zip(owners, page.run.table["_offset"].to_pylist(), strict=True)
    return found


async def test_scattered_messages_are_read_at_once() -> None:
    reader, grants = Reader(), [Grant(3, each, each + 1, 1) for each in range(0, 500, 10)]
    granted, told = await read(reader, grants)
    assert reader.reads == [(3, 0, 491)]
    assert messages(granted) == [(each, each.start) for each in grants] and granted.rows == 50
    assert not told.lost and not told.back


async def test_messages_that_lie_far_apart_are_not() -> None:
    reader, far = Reader(), 2 + MOST_GAP_ROWS
    granted, _ = await read(reader, [Grant(0, 0, 1, 1), Grant(0, far, far + 1, 1), Grant(1, far + 1, far + 2, 1)])
    assert reader.reads == [(0, 0, 1), (0, far, 1), (1, far + 1, 1)]
    assert [offset for _, offset in messages(granted)] == [0, far, far + 1]


async def test_what_does_not_fit_goes_back_and_a_grant_is_cut_there() -> None:
    granted, told = await read(Reader(), [Grant(0, 0, 4, 2), Grant(0, 4, 9, 1), Grant(0, 20, 21, 1)], 6 * ROW_BYTES)
    assert granted.grants == [Grant(0, 0, 4, 2), Grant(0, 4, 6, 1)]
    assert told.back == {(0, 6), (0, 7), (0, 8), (0, 20)} and not told.lost
    granted, told = await read(Reader(), [Grant(0, 0, 4, 2)], 1)
    assert messages(granted) == [(Grant(0, 0, 1, 2), 0)] and len(told.back) == 3


async def test_a_segment_without_messages_any_more_loses_what_was_granted_of_it() -> None:
    granted, told = await read(Reader(end=5), [Grant(0, 7, 9, 1), Grant(0, 12, 13, 1)])
    assert (granted.grants, granted.pages) == ([], [])
    assert told.lost == {(0, 7), (0, 8), (0, 12)} and not told.back
    assert (await read(Reader(), []))[0].rows == 0


@pytest.mark.parametrize("seed", range(40))
async def test_every_message_is_read_lost_or_taken_back(seed: int) -> None:
    chance = random.Random(seed)
    grants: list[Grant] = []
    for _ in range(2):  # what comes again is granted first, and begins anew
        for segment in (0, 2):
            stop = 0
            for _ in range(chance.randint(0, 12)):
                start = stop + chance.choice([0, 0, 1, 7, MOST_GAP_ROWS + 5])
                stop = start + chance.randint(1, 9)
                grants.append(Grant(segment, start, stop, chance.randint(1, 3)))
    gone = {(segment, chance.randrange(60)) for segment in (0, 2) for _ in range(chance.choice([0, 0, 15]))}
    max_bytes = chance.choice([1_000_000, 40 * ROW_BYTES, 7 * ROW_BYTES])
    granted, told = await read(Reader(gone, end=chance.choice([100_000, 70])), grants, max_bytes)
    found = messages(granted)
    assert all(grant.start <= offset < grant.stop for grant, offset in found)
    total = sum(grant.stop - grant.start for grant in grants)
    everywhere = {(grant.segment, offset) for grant, offset in found} | told.lost | told.back
    assert everywhere == {(each.segment, offset) for each in grants for offset in range(each.start, each.stop)}
    assert not gone & {(grant.segment, offset) for grant, offset in found}
    assert len(found) <= total and granted.rows * ROW_BYTES <= max(max_bytes, ROW_BYTES)
