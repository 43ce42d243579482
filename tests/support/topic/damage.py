"""Damage to the bytes of a file: one bit flipped, or the end cut off."""

from collections.abc import Iterator


def with_bit_flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def damaged(data: bytes, *, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """A flipped bit of every `step`-th byte, each time another one, and a cut before that byte; each with its name."""
    for number, at in enumerate(range(0, len(data), step)):
        bit = at * 8 + number % 8
        yield f"bit {bit}", with_bit_flipped(data, bit)
        yield f"cut at {at}", data[:at]
