"""The texts of single numbers that JSON, or Python, would write otherwise. They need no Arrow."""

from decimal import Decimal
from typing import Literal

NonFinite = Literal["refuse", "null", "text"]
"""The form of NaN and the infinities, which JSON does not have."""

_MOST_DIGITS = 1000
"""An exponent of a few digits would make a text of a billion. Decimals of Arrow have at most 76."""


def decimal_text(number: Decimal) -> bytes:
    """All digits of a decimal, without an exponent. Raises `ValueError` for one that is not finite, or very long."""
    if not number.is_finite():
        raise ValueError("JSON has no such number")
    if number and max(abs(number.adjusted()), len(number.as_tuple().digits)) > _MOST_DIGITS:
        raise ValueError(f"a decimal of more than {_MOST_DIGITS:,} digits, written without an exponent")
    return format(number, "f").encode()


def duration_text(nanoseconds: int) -> bytes:
    """A duration in seconds, as a number with six digits, or nine if nanoseconds are not zero."""
    seconds, rest = divmod(abs(nanoseconds), 10**9)
    digits = f"{rest:09d}"
    sign = "-" if nanoseconds < 0 else ""
    return f"{sign}{seconds}.{digits.removesuffix('000') if rest % 1000 == 0 else digits}".encode()


def non_finite_name(number: float) -> str:
    """The name of NaN and the infinities in texts."""
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
