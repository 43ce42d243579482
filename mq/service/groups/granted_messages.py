"""Reads the messages that were granted to a consumer: many of one page together, if they lie near each other."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from groups.queue.claims import Grant
from mq.topic.run import Run
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_view import TopicView, as_shown

MOST_GAP_ROWS, MOST_SPAN_ROWS = 1_000, 20_000
"""Grants with at most so many messages of others between them are read together, over so many rows."""
MIXED_PAGE_BYTES = 1024 * 1024
"""The size of one read if messages of others lie between. Those are not kept."""


class Piece(NamedTuple):
    """The messages `[start, stop)` of the grant with that number."""

    number: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """The number of messages."""
        return self.stop - self.start


class GrantedPage(NamedTuple):
    """Messages of one segment, in the order of the grants to which they belong."""

    pieces: list[Piece]
    run: Run


class Granted(NamedTuple):
    """The result of a read: the grants, each as far as it was read, and their messages."""

    grants: list[Grant]
    pages: list[GrantedPage]

    @property
    def rows(self) -> int:
        """The number of messages."""
        return sum(page.run.table.num_rows for page in self.pages)

    def as_shown(self, view: TopicView) -> "Granted":
        """The same messages as the view shows them: messages of a member do not name their member."""
        return Granted(self.grants, [page._replace(run=_as_shown(view, page.run)) for page in self.pages])


Lose = Callable[[Grant, int, int], None]
"""Gets a range of messages of a grant that are gone: retention or a repair has removed them meanwhile."""
TakeBack = Callable[[Grant, int], None]
"""Gets the offset from which on no consumer will see the messages of a grant."""


async def read_granted(
    reader: TopicReader, grants: Sequence[Grant], max_bytes: int, *, lose: Lose, take_back: TakeBack
) -> Granted:
    """The messages of the grants, up to about `max_bytes`, at least one. The rest goes back.

    Raises as `TopicReader.read_segment`; the rest of all grants is still leased then.
    """
    pages: list[GrantedPage] = []
    place = _Place(grants)
    while place.grant is not None and max_bytes > 0:
        page = await _page(reader, place, max_bytes)
        rows = page.table.num_rows
        first, end = (page.end - rows, page.end) if rows else (place.grant.stop, place.grant.stop)
        if pieces := place.pass_over(page.segment, first, end, lose):
            pages.append(GrantedPage(pieces, _picked(page, first, pieces)))
            max_bytes -= pages[-1].run.size_bytes
    for grant, reached in place.left():
        take_back(grant, reached)
    return _granted(grants, pages)


def _as_shown(view: TopicView, run: Run) -> Run:
    return run if view.member is None else Run.of(run.segment, run.end, as_shown(view, run.table))


class _Place:
    """The place up to which a list of grants is read."""

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._grants, self._number = grants, 0
        self.offset = grants[0].start if grants else 0

    @property
    def grant(self) -> Grant | None:
        """The next grant; None at the end."""
        return self._grants[self._number] if self._number < len(self._grants) else None

    def left(self) -> list[tuple[Grant, int]]:
        """The grants that are not read to their ends, each with the offset that was reached."""
        return [
            (grant, self.offset if number == self._number else grant.start)
            for number, grant in enumerate(self._grants)
            if number >= self._number
        ]

    def span(self) -> int:
        """How many rows there are up to the end of the last grant that lies near."""
        before = self._grants[self._number]
        for grant in self._grants[self._number + 1 :]:
            is_near = grant.segment == before.segment and 0 <= grant.start - before.stop <= MOST_GAP_ROWS
            if not is_near or grant.stop - self.offset > MOST_SPAN_ROWS:
                break
            before = grant
        return before.stop - self.offset

    def pass_over(self, segment: int, first: int, end: int, lose: Lose) -> list[Piece]:
        """Pass `[first, end)` of a segment, which was read, and return its granted parts. Those before it are gone."""
        found: list[Piece] = []
        while (grant := self.grant) is not None and grant.segment == segment:
            if self.offset < first:
                gone = min(first, grant.stop)
                lose(grant, self.offset, gone)
                self.offset = gone
            stop = min(grant.stop, end)
            if self.offset < stop:
                found.append(Piece(self._number, self.offset, stop))
                self.offset = stop
            if self.offset < grant.stop:
                break
            self._number += 1
            following = self.grant
            if following is None:
                break
            is_behind = following.segment == segment and following.start >= grant.stop
            self.offset = following.start
            if not is_behind or self.offset >= end:
                break
        return found


async def _page(reader: TopicReader, place: _Place, max_bytes: int) -> Run:
    grant, span = place.grant, place.span()
    assert grant is not None
    is_mixed = span > grant.stop - place.offset
    most_bytes = min(max_bytes, MIXED_PAGE_BYTES) if is_mixed else max_bytes
    return await reader.read_segment(grant.segment, place.offset, max_rows=span, max_bytes=most_bytes)


def _picked(page: Run, first: int, pieces: Sequence[Piece]) -> Run:
    """The rows of these pieces. Rows between them are not kept."""
    start, stop = pieces[0].start, pieces[-1].stop
    if stop - start == sum(each.rows for each in pieces):
        if start == first and stop == page.end:
            return page
        return Run.of(page.segment, stop, page.table.slice(start - first, stop - start))
    rows = np.concatenate([np.arange(each.start - first, each.stop - first) for each in pieces])
    return Run.of(page.segment, stop, page.table.take(pa.array(rows)))


def _granted(grants: Sequence[Grant], pages: Sequence[GrantedPage]) -> Granted:
    """The grants with messages, as far as they were read, and the pages, whose pieces get new numbers of grants."""
    numbers: dict[int, int] = {}
    found: list[Grant] = []
    for page in pages:
        for index, piece in enumerate(page.pieces):
            number = numbers.setdefault(piece.number, len(numbers))
            if number == len(found):
                found.append(grants[piece.number])
            if found[number].stop != piece.stop:
                found[number] = found[number]._replace(stop=piece.stop)
            if piece.number != number:
                page.pieces[index] = piece._replace(number=number)
    return Granted(found, list(pages))
