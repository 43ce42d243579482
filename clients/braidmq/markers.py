"""Markers between the messages of one page: the broker sends one for each page, readers may want more."""

from filer.topic.positions import from_marker, to_marker


class PageMarkers:
    """The markers after each message of a page.

    `start` is the marker that the page was read from (None only if the page has at most one message), `segments` and
    `offsets` are the positions of its messages, and `end` is the marker after the last. A marker in between has the
    positions of `start`, updated by those of the messages so far. It need not name successors or drop drained
    predecessors: the broker does both. In ascending order, each call of `after` takes constant time.
    """

    def __init__(self, topic: str, start: str | None, segments: list[int], offsets: list[int], end: str) -> None:
        self._topic = topic
        self._start = start
        self._segments = segments
        self._offsets = offsets
        self._end = end
        self._positions: dict[int, int] | None = None
        self._rows_applied = 0

    def after(self, row: int) -> str:
        """Return the marker after the messages up to `row`, which counts from 0."""
        if row == len(self._offsets) - 1 or self._start is None:
            return self._end
        if self._positions is None or row + 1 < self._rows_applied:
            self._positions = from_marker(self._topic, self._start)
            self._rows_applied = 0
        for index in range(self._rows_applied, row + 1):
            self._positions[self._segments[index]] = self._offsets[index] + 1
        self._rows_applied = row + 1
        return to_marker(self._topic, self._positions)
