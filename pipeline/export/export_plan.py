"""Decides what is left for an export: pure functions of positions and listed files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import NamedTuple

from filer.errors import InvalidInput
from filer.topic.positions import Positions
from filer.topic.topic_state import Segment
from pipeline.compact.compaction_plan import settled
from pipeline.export.choices import InPlace
from pipeline.topic_files import LiveFile, SegmentFiles, in_parts, unbroken

PIECE_BYTES = 64 * 1024 * 1024
MOST_PIECES = 4096
"""A run makes at most so many pieces visible together. The next run continues after them."""


class Piece(NamedTuple):
    """The messages `[start, stop)` of a segment. `by_reference` is the key of a file that the table can refer to."""

    segment: int
    start: int
    stop: int
    by_reference: str | None = None

    @property
    def name(self) -> str:
        """The name of its files. A repeated export of the same messages makes the same name."""
        return f"{self.segment:010d}-{self.start:020d}-{self.stop:020d}.parquet"

    def from_offset(self, offset: int) -> "Piece":
        """Return the part of the piece from that offset on."""
        return self if offset <= self.start else Piece(self.segment, offset, self.stop)


@dataclass(frozen=True, slots=True)
class Copies:
    """The copied messages of some pieces: in sealed segments, and in open ones."""

    sealed_messages: int = 0
    open_messages: int = 0
    files: int = 0
    size_bytes: int = 0

    @property
    def messages(self) -> int:
        """All copied messages."""
        return self.sealed_messages + self.open_messages


def copies_of(topic: Iterable[SegmentFiles], pieces: Iterable[Piece]) -> Copies:
    """Return what the pieces copy. A file that is copied in part counts with its whole size."""
    segments = {listed.segment.id: listed for listed in topic}
    messages = {True: 0, False: 0}
    files: dict[str, int] = {}
    for piece in pieces:
        listed = segments.get(piece.segment)
        if piece.by_reference is None and listed is not None:
            messages[listed.segment.state == "sealed"] += piece.stop - piece.start
            within = (file for file in listed.files if file.stop > piece.start and file.start < piece.stop)
            files |= {file.key: file.size_bytes for file in within}
    return Copies(messages[True], messages[False], len(files), sum(files.values()))


def plan_pieces(topic: Sequence[SegmentFiles], exported: Mapping[int, int], in_place: InPlace) -> list[Piece]:
    """Return the messages after the exported positions, in pieces that begin and end with a file, oldest first.

    Raises `InvalidInput` if retention has deleted messages that were never exported.
    """
    pieces: list[Piece] = []
    for listed in topic:
        reached = exported.get(listed.segment.id, 0)
        if reached < listed.segment.start_offset:
            raise InvalidInput(
                f"messages {reached} to {listed.segment.start_offset - 1} of segment {listed.segment.id} have expired "
                "before they were exported; --skip-expired continues without them"
            )
        pieces += _pieces_of(listed, reached, in_place)
        if len(pieces) >= MOST_PIECES:
            break
    return pieces[:MOST_PIECES]


def _pieces_of(listed: SegmentFiles, reached: int, in_place: InPlace) -> list[Piece]:
    # An empty seal is of no use to a table.
    new = [file for file in listed.files if file.stop > max(reached, file.start)]
    final = () if in_place is InPlace.NO else settled(listed)
    referable = {file for file in final if _counts_whole(file)}
    pieces: list[Piece] = []
    while new:
        if new[0] in referable and new[0].start >= reached:
            file = new.pop(0)
            pieces.append(Piece(listed.segment.id, file.start, file.stop, file.key))
            continue
        if in_place is InPlace.FINAL_ONLY:
            break
        run = list(takewhile(lambda file: file not in referable or file.start < reached, new))
        for part in chain.from_iterable(in_parts(each, most_bytes=PIECE_BYTES) for each in unbroken(run)):
            pieces.append(Piece(listed.segment.id, max(part[0].start, reached), part[-1].stop))
        del new[: len(run)]
    return pieces


def _counts_whole(file: LiveFile) -> bool:
    """Whether all messages of the file are live."""
    return file.start == file.name.base and file.name.end in (None, file.stop)


def positions_after(exported: Mapping[int, int], pieces: Sequence[Piece], present: Sequence[int]) -> Positions:
    """Return the positions after those pieces, for the segments that are still in topic.json.

    Segment ids are used once: a segment that has left topic.json never comes back.
    """
    after = dict(exported)
    for piece in pieces:
        after[piece.segment] = max(after.get(piece.segment, 0), piece.stop)
    return {segment: offset for segment, offset in after.items() if segment in present}


def with_new(topic: Iterable[Segment], exported: Mapping[int, int]) -> list[Segment]:
    """Return the segments that may have messages after the exported positions. A sealed one contains its own end."""
    return [each for each in topic if each.end_offset is None or exported.get(each.id, 0) < each.end_offset]


def without_expired(topic: Iterable[Segment], pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return the pieces without the messages that retention has deleted."""
    starts = {segment.id: segment.start_offset for segment in topic}
    left = (piece.from_offset(starts.get(piece.segment, piece.stop)) for piece in pieces)
    return tuple(piece for piece in left if piece.start < piece.stop)


def past_expired(topic: Iterable[Segment], exported: Mapping[int, int]) -> Positions:
    """Return the positions, moved past the messages that retention has deleted."""
    starts = {segment.id: segment.start_offset for segment in topic}
    return {segment: max(exported.get(segment, 0), start) for segment, start in starts.items()}
