from dataclasses import replace

import pytest

from filer.errors import InvalidInput
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef
from filer.topic.topic_state import Segment
from filer.upkeep.rollup import SETTLED_BYTES
from pipeline.export.choices import InPlace
from pipeline.export.export_plan import (
    PIECE_BYTES,
    Copies,
    Piece,
    copies_of,
    past_expired,
    plan_pieces,
    positions_after,
    with_new,
    without_expired,
)
from pipeline.topic_files import LiveFile, SegmentFiles

MIB = 1024 * 1024
LARGE = SETTLED_BYTES


def listed(
    segment: int, *sizes: int, sealed: bool = True, start_offset: int = 0, rolled: frozenset[int] = frozenset()
) -> SegmentFiles:
    """Files of 10 messages each, of those sizes in MiB, from `start_offset` on."""
    ref = SegmentRef("t", segment)
    end = start_offset + 10 * len(sizes)
    bases = range(start_offset, end, 10)
    files = tuple(
        LiveFile(ref, FileName(base, base + 10 if index in rolled else None), base, base + 10, size * MIB, 0)
        for index, (base, size) in enumerate(zip(bases, sizes, strict=True))
    )
    record = Segment(
        id=segment, start_slot=0, stop_slot=65_536, brokers=("b",), opened_us=1, reason="create",
        state="sealed" if sealed else "open", start_offset=start_offset, end_offset=end if sealed else None,
        seal_offset=end if sealed else None,
    )  # fmt: skip
    return SegmentFiles(record, ref, end, files)


def test_pieces_begin_and_end_with_files_and_are_of_a_size():
    most = PIECE_BYTES // MIB
    pieces = plan_pieces([listed(0, most // 2, most // 2, 1, most)], {}, InPlace.NO)
    assert pieces == [Piece(0, 0, 20), Piece(0, 20, 30), Piece(0, 30, 40)]


def test_only_what_is_new_is_planned_even_from_the_middle_of_a_roll_up():
    assert plan_pieces([listed(0, 1, 1, 1), listed(1, 1)], {0: 15, 1: 10}, InPlace.NO) == [Piece(0, 15, 30)]
    assert plan_pieces([listed(0, 1, 1)], {0: 20}, InPlace.NO) == []


def test_names_are_those_of_the_messages():
    assert Piece(3, 15, 30).name == "0000000003-00000000000000000015-00000000000000000030.parquet"


def test_settled_files_serve_as_they_are_and_the_rest_is_copied():
    """What a compaction might write again, what is partly exported, and what is open is copied."""
    large = LARGE // MIB
    (piece, *rest) = plan_pieces([listed(0, large, 1, 1, large)], {}, InPlace.FINAL)
    assert piece.by_reference is not None and (piece.start, piece.stop) == (0, 10)
    assert [(each.start, each.stop, each.by_reference is None) for each in rest] == [(10, 30, True), (30, 40, False)]
    assert plan_pieces([listed(0, large)], {0: 5}, InPlace.FINAL) == [Piece(0, 5, 10)]
    assert plan_pieces([listed(0, large, sealed=False)], {}, InPlace.FINAL) == [Piece(0, 0, 10)]
    assert plan_pieces([listed(0, large)], {}, InPlace.NO) == [Piece(0, 0, 10)]


def with_seal(segment: int, *sizes: int) -> SegmentFiles:
    """As `listed`, sealed by the last file, which has messages."""
    found = listed(segment, *sizes)
    record = found.segment.model_copy(update={"seal_offset": found.files[-1].start})
    return replace(found, segment=record)


def test_a_seal_is_final_however_small_it_is_and_an_empty_one_is_no_piece() -> None:
    pieces = plan_pieces([with_seal(0, 1, 1, 1)], {}, InPlace.FINAL)
    assert [(each.start, each.by_reference is None) for each in pieces] == [(0, True), (20, False)]
    large = listed(0, LARGE // MIB)
    empty = LiveFile(large.ref, FileName(10), 10, 10, 500, 0)
    pieces = plan_pieces([replace(large, files=(*large.files, empty))], {}, InPlace.FINAL)
    assert [(each.start, each.stop) for each in pieces] == [(0, 10)]


def test_only_in_place_a_segment_waits_behind_what_is_not_final() -> None:
    large = LARGE // MIB
    topic = [listed(0, large, 1, 1, large), listed(1, 1, sealed=False), listed(2, large)]
    pieces = plan_pieces(topic, {}, InPlace.FINAL_ONLY)
    assert [(each.segment, each.start, each.stop) for each in pieces] == [(0, 0, 10), (2, 0, 10)]
    assert all(each.by_reference for each in pieces)


def test_what_is_copied_is_counted_by_what_could_be_done_about_it() -> None:
    large = LARGE // MIB
    topic = [listed(0, large, 1, 1, large), listed(1, 1, sealed=False), listed(2, 1)]
    pieces = plan_pieces(topic, {0: 15, 2: 10}, InPlace.FINAL)
    assert copies_of(topic, pieces) == Copies(15, 10, files=3, size_bytes=3 * MIB)


def test_what_expired_before_it_was_exported_is_said():
    topic = [listed(0, 1, start_offset=40)]
    with pytest.raises(InvalidInput, match=r"messages 7 to 39 of segment 0 have expired .* --skip-expired"):
        plan_pieces(topic, {0: 7}, InPlace.NO)
    segments = [each.segment for each in topic]
    assert plan_pieces(topic, past_expired(segments, {0: 7}), InPlace.NO) == [Piece(0, 40, 50)]
    assert past_expired(segments, {0: 45}) == {0: 45}
    assert plan_pieces(topic, {0: 40}, InPlace.NO) == [Piece(0, 40, 50)]


def test_of_pieces_that_have_expired_what_is_left_is_kept():
    topic = [listed(1, 1, 1, start_offset=40).segment, listed(2, 1).segment]
    pieces = (Piece(0, 0, 9), Piece(1, 0, 40), Piece(1, 30, 50, "key"), Piece(1, 50, 60), Piece(2, 0, 10, "key"))
    assert without_expired(topic, pieces) == (Piece(1, 40, 50), Piece(1, 50, 60), Piece(2, 0, 10, "key"))


def test_segments_that_are_exported_to_their_end_are_not_listed_again():
    topic = [listed(0, 1), listed(1, 1), listed(2, 1, sealed=False), listed(3, 1)]
    assert [each.id for each in with_new((each.segment for each in topic), {0: 10, 1: 9, 2: 10})] == [1, 2, 3]


def test_positions_move_on_and_segments_that_are_gone_are_forgotten():
    after = positions_after({0: 5, 1: 9}, [Piece(1, 9, 12), Piece(2, 0, 4)], [1, 2])
    assert after == {1: 12, 2: 4}
