"""How much memory JSON takes while it is parsed, which is known before it is."""

from collections.abc import Generator

LARGE_BYTES = 256 * 1024
"""A text up to this is parsed without a look."""
MOST_PARSED_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 128 * 1024
# Rough sizes of what each of these begins, in a list or in a dictionary of few entries.
_OBJECT_BYTES = ((b"[", 72), (b"{", 240), (b",", 40), (b'"', 32), (b":", 16))


def parsed_bytes(text: bytes) -> int:
    """About how much the objects of a JSON text take at most; 0 for one that is not large.

    A text of empty lists takes forty times its size.
    """
    counting = parsed_bytes_in_steps(text)
    while True:
        try:
            next(counting)
        except StopIteration as end:
            return int(end.value)


def parsed_bytes_in_steps(text: bytes) -> Generator[None, None, int]:
    """As `parsed_bytes`. It yields after each piece of the text: while one counts a large text, no other runs."""
    if len(text) <= LARGE_BYTES:
        return 0
    total_bytes = len(text)
    for start in range(0, len(text), _PIECE_BYTES):
        piece = text[start : start + _PIECE_BYTES]
        total_bytes += sum(piece.count(sign) * size_bytes for sign, size_bytes in _OBJECT_BYTES)
        yield
    return total_bytes
