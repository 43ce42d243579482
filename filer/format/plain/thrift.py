"""Values in Thrift's compact protocol, in which Parquet has the headers of pages and the footer."""

from collections.abc import Iterable

from filer.varint import varint

END = b"\x00"
"""Ends a struct."""
I32, I64, BINARY, STRUCT = 5, 6, 8, 12
"""The types of values, as the head of a list names them."""
_LONG_LIST = 15


_SMALL = [varint(number << 1) for number in range(4096)]


def zigzag(number: int) -> bytes:
    """An integer of either sign."""
    # Most numbers in headers and footers are small.
    if 0 <= number < len(_SMALL):
        return _SMALL[number]
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def text(data: bytes) -> bytes:
    """A string or bytes."""
    return varint(len(data)) + data


def items(kind: int, encoded: Iterable[bytes]) -> bytes:
    """A list of encoded values of that type."""
    parts = [*encoded]
    count = len(parts)
    head = bytes((count << 4 | kind,)) if count < _LONG_LIST else bytes((_LONG_LIST << 4 | kind,)) + varint(count)
    return head + b"".join(parts)
