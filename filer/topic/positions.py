"""Positions in a whole topic, `{segment: offset}`: how they advance along the lineage, and markers that encode them.

A set of positions always covers all slots: a segment stays in it until every successor was entered, and a successor is
entered only when all its predecessors are drained. So order per key holds across every transition.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from filer.errors import BraidError, InvalidMarker
from filer.slots import SLOTS
from filer.varint import varint, varints

if TYPE_CHECKING:
    # Clients read and write markers, and need no topic records for that.
    from filer.topic.topic_state import Segment, TopicState

Positions = dict[int, int]

_VERSION = 1
MARKER_MAX_CHARS = 64 * 1024


class PositionExpired(BraidError):
    """The messages at this position have expired."""


def earliest(state: "TopicState") -> Positions:
    """The earliest positions: the starts of the segments that have no predecessor left."""
    present = {s.id for s in state.segments}
    return {s.id: s.start_offset for s in state.segments if not present.intersection(s.predecessors)}


def advance(state: "TopicState", positions: Mapping[int, int]) -> Positions:
    """Enter each successor if its predecessors are all drained. Leave each segment once its successors are all entered.

    Positions of segments that retention has removed stay: `check_positions` raises for them.
    """
    walk = _Walk({s.id: s for s in state.segments}, dict(positions))
    before: set[int] = set()
    while before != walk.positions.keys():
        before = set(walk.positions)
        for segment_id in sorted(before):
            walk.leave(segment_id)
    return walk.positions


def passed_by(state: "TopicState", positions: Mapping[int, int]) -> set[int]:
    """The segments that were drained before these positions: those with a descendant among them."""
    passed: set[int] = set()
    # A successor has a higher id than its predecessors.
    for segment in sorted(state.segments, key=lambda segment: segment.id, reverse=True):
        if any(each in positions or each in passed for each in segment.successors):
            passed.add(segment.id)
    return passed


class _Walk:
    """Advances positions along the lineage.

    `passed` are the ancestors of the segments in the positions. All their messages were read, since a successor is
    entered only then. A marker made in the middle of a page may still name a segment that was left since, after its
    successors were entered. The marker then names those successors that had messages, but not the empty ones, nor their
    successors without messages.
    """

    def __init__(self, by_id: Mapping[int, "Segment"], positions: Positions) -> None:
        self._by_id = by_id
        self.positions = positions
        self._passed: set[int] | None = None

    def leave(self, segment_id: int) -> None:
        """Enter the segment's successors if it is drained, and leave it once all of them are entered."""
        segment = self._by_id.get(segment_id)
        if segment is None or not segment.successors or not _drained(segment, self.positions):
            return
        if self._passed is None:
            self._passed = self._ancestors()
        if self._enter_all(segment, self._passed):
            del self.positions[segment_id]
            self._passed.add(segment_id)

    def _ancestors(self) -> set[int]:
        """All ancestors of the segments in the positions that are not in the positions, as far as they still exist."""
        found: set[int] = set()
        waiting = list(self.positions)
        while waiting:
            segment = self._by_id.get(waiting.pop())
            fresh = [each for each in (segment.predecessors if segment else ()) if each not in found]
            found.update(fresh)
            waiting += fresh
        return found - self.positions.keys()

    def _enter_all(self, segment: "Segment", passed: set[int]) -> bool:
        """Enter its successors, or those of passed ones, if all predecessors are read; returns whether all are."""
        waiting, seen, entered = list(segment.successors), set[int](), True
        while waiting:
            each = self._by_id.get(waiting.pop())
            if each is None or each.id in self.positions or each.id in seen:
                continue
            seen.add(each.id)
            if each.id in passed:
                waiting += each.successors
            elif all(self._is_read(before, passed) for before in each.predecessors):
                self.positions[each.id] = each.start_offset
            else:
                entered = False
        return entered

    def _is_read(self, segment_id: int, passed: set[int]) -> bool:
        """Whether all of it was read, or it no longer exists."""
        segment = self._by_id.get(segment_id)
        return segment is None or segment_id in passed or _drained(segment, self.positions)


def _drained(segment: "Segment", positions: Mapping[int, int]) -> bool:
    return segment.state == "sealed" and positions.get(segment.id, -1) >= (segment.end_offset or 0)


def to_marker(topic: str, positions: Mapping[int, int]) -> str:
    """An opaque string that encodes the positions: varints, segment ids as differences, and a checksum."""
    payload = bytearray()
    previous = 0
    for segment_id in sorted(positions):
        payload += varint(segment_id - previous)
        payload += varint(positions[segment_id])
        previous = segment_id
    body = bytes([_VERSION]) + bytes(payload)
    return base64.urlsafe_b64encode(_checksum(topic, body) + body).rstrip(b"=").decode()


def from_marker(topic: str, marker: str) -> Positions:
    """The positions of a marker; raises `InvalidMarker` for anything `to_marker` did not make for this topic."""
    foreign = f"{marker[:80]!r} is not a marker of topic {topic!r}: pass one on as it was received"
    if len(marker) > MARKER_MAX_CHARS:
        raise InvalidMarker(f"a marker has at most {MARKER_MAX_CHARS} characters")
    try:
        raw = base64.b64decode(marker.encode("ascii") + b"=" * (-len(marker) % 4), altchars=b"-_", validate=True)
        check, body = raw[:4], raw[4:]
        if not body or check != _checksum(topic, body) or body[0] != _VERSION:
            raise InvalidMarker(foreign)
        return _read_pairs(body[1:])
    except (UnicodeEncodeError, binascii.Error, ValueError, IndexError) as error:
        raise InvalidMarker(foreign) from error


def check_positions(state: "TopicState", positions: Mapping[int, int]) -> None:
    """Raise `InvalidMarker` if the positions cannot be of this topic, `PositionExpired` if they are too old."""
    by_id = {s.id: s for s in state.segments}
    covered = sorted(by_id[i].range for i in positions if i in by_id)
    for segment_id, offset in positions.items():
        segment = by_id.get(segment_id)
        if segment is None and segment_id < state.next_segment:
            raise PositionExpired(f"segment {segment_id} of topic {state.topic!r} has been removed by retention")
        if segment is None:
            raise InvalidMarker(f"topic {state.topic!r} has no segment {segment_id}")
        if offset < segment.start_offset:
            raise PositionExpired(
                f"offset {offset} of segment {segment_id} is older than what is kept (from {segment.start_offset} on)"
            )
        if segment.end_offset is not None and offset > segment.end_offset:
            raise InvalidMarker(f"offset {offset} is beyond the end of segment {segment_id}, {segment.end_offset}")
    reached = 0
    for start, stop in covered:
        if start > reached:
            break
        reached = max(reached, stop)
    if reached < SLOTS:
        raise InvalidMarker(f"the marker leaves out a part of topic {state.topic!r}: pass one on as it was received")


def _checksum(topic: str, body: bytes) -> bytes:
    return zlib.crc32(topic.encode() + b"\0" + body).to_bytes(4, "big")


def _read_pairs(data: bytes) -> Positions:
    numbers = varints(data)
    if len(numbers) % 2:
        raise ValueError("cut short")
    positions: Positions = {}
    segment_id = 0
    for difference, offset in zip(numbers[::2], numbers[1::2], strict=True):
        segment_id += difference
        positions[segment_id] = offset
    return positions
