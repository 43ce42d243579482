"""Where the frames of a WebSocket begin and end, and the texts of small ones, as most are. Pure.

The library's parser takes several times as long for such a text. All other frames are left to it, and so is everything
that breaks the protocol: it alone decides what is refused, and why.
"""

import re
from typing import NamedTuple

SMALL_BYTES = 4 * 1024
"""The longest text of a small frame."""
MOST_TEXTS, TAKEN_BYTES = 256, 64 * 1024
"""So many texts, in about so many bytes, are taken at once: some milliseconds, with the work on them."""
_WHOLE_TEXT, _MASKED = 0x81, 0x80
"""The first byte of a frame that is a whole text, without an extension; and what the second of a client's has set."""
_OPCODES = frozenset({0, 1, 2, 8, 9, 10})
_TWO_BYTES, _EIGHT_BYTES = 126, 127
"""Lengths that mean that the length follows, in so many bytes (RFC 6455 §5.2)."""
_MASK_BYTES = 4


class Texts(NamedTuple):
    """The texts that were found, where the next frame begins, and whether that is an incomplete small one."""

    found: list[bytes]
    end: int
    is_cut: bool


class Others(NamedTuple):
    """The bytes up to `end` are for the library.

    If the last frame is incomplete, they contain `half_bytes` of it, and `left_bytes` are to come; else both are 0.
    """

    end: int
    half_bytes: int = 0
    left_bytes: int = 0


_LENGTH_BYTES = {_TWO_BYTES: 2, _TWO_BYTES + 1: 8}
FIRST_BYTES = 128
"""So much of a message is enough to find its id."""
_ID_FIRST = re.compile(rb'\s*\{\s*"id"\s*:\s*(0|[1-9][0-9]{0,14}|"[ !#-\[\]-~]{1,64}")\s*,')


def small_texts(data: bytes, at: int, longest_bytes: int) -> Texts:
    """Return the texts of the small frames from `at` on, where a frame begins.

    It ends at the first frame of another kind, or with as many as are taken at once. None is longer than
    `longest_bytes`.
    """
    longest, size, enough = min(SMALL_BYTES, longest_bytes), len(data), at + TAKEN_BYTES
    found: list[bytes] = []
    while at < size and at < enough and len(found) < MOST_TEXTS:
        if data[at] != _WHOLE_TEXT:
            return Texts(found, at, is_cut=False)
        if at + 2 > size:
            return Texts(found, at, is_cut=True)
        length, mask_at = data[at + 1] - _MASKED, at + 2
        if length == _TWO_BYTES:
            if at + 4 > size:
                return Texts(found, at, is_cut=True)
            length, mask_at = data[at + 2] << 8 | data[at + 3], at + 4
        elif length > _TWO_BYTES:
            return Texts(found, at, is_cut=False)
        if not 0 <= length <= longest:
            return Texts(found, at, is_cut=False)
        begin = mask_at + _MASK_BYTES
        if begin + length > size:
            return Texts(found, at, is_cut=True)
        at = begin + length
        mask = (data[mask_at:begin] * (length // _MASK_BYTES + 1))[:length]
        text = int.from_bytes(data[begin:at], "little") ^ int.from_bytes(mask, "little")
        found.append(text.to_bytes(length, "little"))
    return Texts(found, at, is_cut=False)


def other_frames(data: bytes, at: int, most_bytes: int) -> Others:
    """Return the library's part from `at` on, where a frame begins: that frame, and those behind it without texts.

    It has about so many bytes at the most. Of a frame with an incomplete length it has nothing.
    """
    size, begin = len(data), at
    while at < size and at - begin < most_bytes and (at == begin or data[at] != _WHOLE_TEXT):
        length = _frame_bytes(data, at)
        if length is None:
            return Others(size)
        if not length:
            break
        given = min(at + length, size, begin + most_bytes)
        if given < at + length:
            return Others(given, given - at, at + length - given)
        at = given
    return Others(at)


def _frame_bytes(data: bytes, at: int) -> int | None:
    """Return how long the frame is that begins there; 0 if its length has not come; None if no client may send it."""
    if at + 2 > len(data):
        return 0
    if not data[at + 1] & _MASKED or data[at] & 0x0F not in _OPCODES:
        return None
    length, of_length = data[at + 1] & ~_MASKED, 0
    if length >= _TWO_BYTES:
        of_length = 2 if length == _TWO_BYTES else 8
        if at + 2 + of_length > len(data):
            return 0
        length = int.from_bytes(data[at + 2 : at + 2 + of_length])
    return 2 + of_length + _MASK_BYTES + length


def first_of_message(data: bytes, at: int, longest_bytes: int) -> bytes:
    """Return the first bytes of the first message longer than that, from the frame at `at` on."""
    while length := _frame_bytes(data, at):
        begin = at + 2 + _LENGTH_BYTES.get(data[at + 1] & ~_MASKED, 0) + _MASK_BYTES
        if at + length - begin > longest_bytes:
            mask, masked = data[begin - _MASK_BYTES : begin], data[begin : begin + FIRST_BYTES]
            return bytes(byte ^ mask[place % _MASK_BYTES] for place, byte in enumerate(masked))
        at += length
    return b""


def id_at_begin(text: bytes) -> bytes | None:
    """Return the JSON of the id of a message that begins with this, if the id is its first field."""
    match = _ID_FIRST.match(text)
    return None if match is None else match[1]
