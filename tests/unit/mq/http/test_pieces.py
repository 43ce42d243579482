"""A body of many parts leaves in a few pieces, without a copy."""

import pyarrow as pa
import pytest

from mq.forms.render import Part
from mq.http.pieces import MOST_PARTS, PIECE_BYTES, pieces, pieces_together

KIB = 1024


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([0, 0], 0, id="empty parts"),
        pytest.param([PIECE_BYTES], 1, id="just one piece"),
        pytest.param([250 * KIB] * 32, 8, id="parts that do not end with a piece"),
        pytest.param([KIB, 3 * PIECE_BYTES, KIB], 4, id="a long part between short ones"),
        pytest.param([1] * (2 * MOST_PARTS + 1), 3, id="many short parts"),
    ],
)
def test_parts_go_together_up_to_a_piece(sizes: list[int], expected: int) -> None:
    parts: list[Part] = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    found = list(pieces_together(parts))
    assert b"".join(part for piece in found for part in piece.parts) == b"".join(parts)
    assert len(found) == expected
    assert all(0 < len(piece) <= PIECE_BYTES and len(piece.parts) <= MOST_PARTS for piece in found)
    assert [len(piece) for piece in found] == [sum(map(len, piece.parts)) for piece in found]


def test_nothing_is_copied() -> None:
    body = pa.py_buffer(b"x" * (3 * PIECE_BYTES))
    inside = range(body.address, body.address + body.size)
    together = [part for piece in pieces_together([memoryview(body)]) for part in piece.parts]
    for part in [*together, *pieces(memoryview(body))]:
        assert pa.py_buffer(part).address in inside
