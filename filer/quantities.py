"""Sizes and durations as people write them: `256MB`, `1GiB`, `10s`, `1h30m`, or a plain number."""

import re
from fractions import Fraction

_NUMBER = r"\d{1,20}(?:\.\d{1,20})?"
_SIZE = re.compile(rf"({_NUMBER}) ?([a-z]*)", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(rf"(?:{_NUMBER}[a-z]+ ?)+", re.IGNORECASE | re.ASCII)
_PART = re.compile(rf"({_NUMBER})([a-z]+)", re.IGNORECASE | re.ASCII)
_PLAIN = re.compile(rf"{_NUMBER}(?:e[+-]?\d{{1,2}})?", re.IGNORECASE | re.ASCII)

_DECIMAL = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZE_UNITS = {**_DECIMAL, **_BINARY}
"""Bytes of each unit of size. Upper and lower case mean the same."""
_BYTES_OF = {name.lower(): size_bytes for name, size_bytes in SIZE_UNITS.items()}

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
DURATION_UNITS = {"ms": Fraction(1, 1000), **{name: Fraction(seconds) for name, seconds in _SECONDS.items()}}
"""Seconds of each unit of duration."""

_SIZE_RULE = (
    "a size must be a number of bytes, or have one of the units kB, MB, GB and TB (powers of 1000) or "
    "KiB, MiB, GiB and TiB (powers of 1024), as in 256MB"
)
_DURATION_RULE = "a duration must be a number of seconds, or have the units ms, s, m, h, d or w, as in 10s or 1h30m"


def parse_size_bytes(text: str) -> int:
    """Parse a size: `256MB` are 256 x 10^6 bytes, `256MiB` are 256 x 2^20, and a plain number is bytes.

    Raises `ValueError`, which states the rule, for anything else and for parts of a byte.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[2] and match[2].lower() not in _BYTES_OF):
        raise ValueError(_SIZE_RULE)
    size_bytes = Fraction(match[1]) * _BYTES_OF[match[2].lower() or "b"]
    if size_bytes.denominator != 1:
        raise ValueError("a size must be a whole number of bytes")
    return int(size_bytes)


def parse_duration_seconds(text: str) -> float:
    """Parse a duration: `10s`, `5m`, `1h30m`, `1d`, and a plain number is seconds.

    Raises `ValueError`, which states the rule, for anything else.
    """
    stripped = text.strip()
    if _PLAIN.fullmatch(stripped):
        return float(stripped)
    if not _DURATION.fullmatch(stripped):
        raise ValueError(_DURATION_RULE)
    parts = [(Fraction(number), unit.lower()) for number, unit in _PART.findall(stripped)]
    if not {unit for _, unit in parts} <= DURATION_UNITS.keys():
        raise ValueError(_DURATION_RULE)
    return float(sum(number * DURATION_UNITS[unit] for number, unit in parts))


def size_text(size_bytes: int) -> str:
    """Write a size with the largest unit in which it is a whole number; `parse_size_bytes` reads it."""
    for name, unit_bytes in sorted(SIZE_UNITS.items(), key=lambda unit: unit[1], reverse=True):
        if unit_bytes > 1 and size_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes}{name}"
    return str(size_bytes)


def duration_text(seconds: float) -> str:
    """Write a duration with the largest unit in which it is a whole number; `parse_duration_seconds` reads it."""
    for name in ("d", "h", "m"):
        if seconds and seconds % _SECONDS[name] == 0:
            return f"{int(seconds // _SECONDS[name])}{name}"
    return f"{seconds:g}s"
