"""Markers between the messages of one page: the broker gives one a page, readers may want one a message."""

from filer.positions import from_marker, to_marker


class PageMarkers:
    """The markers after each message of a page.

    `start` is the marker that the page was read from (None only for a page of at most one message),
    `segments` and `offsets` are its messages' positions, `end` is the marker after the last. A marker in
    between is the start's positions with those of the messages so far laid over them; the broker enters
    successors that are not named, and leaves predecessors that are drained, by itself. Asking in ascending
    order costs constant time each.
    """

    def __init__(self, topic: str, start: str | None, segments: list[int], offsets: list[int], end: str) -> None:
        self._topic = topic
        self._start = start
        self._segments = segments
        self._offsets = offsets
        self._end = end
        self._positions: dict[int, int] | None = None
        self._done = 0

    def after(self, row: int) -> str:
        """The marker to go on from when the messages up to `row` (from 0) have been dealt with."""
        if row == len(self._offsets) - 1 or self._start is None:
            return self._end
        if self._positions is None or row + 1 < self._done:
            self._positions = from_marker(self._topic, self._start)
            self._done = 0
        for each in range(self._done, row + 1):
            self._positions[self._segments[each]] = self._offsets[each] + 1
        self._done = row + 1
        return to_marker(self._topic, self._positions)
