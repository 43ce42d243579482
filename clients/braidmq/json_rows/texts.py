"""The texts of single numbers that JSON, or Python, would write otherwise. They need no Arrow."""

from decimal import Decimal


def decimal_text(number: Decimal) -> bytes:
    """All digits of a decimal, without an exponent. Raises `ValueError` for one that is not finite."""
    if not number.is_finite():
        raise ValueError("JSON has no such number")
    return format(number, "f").encode()


def duration_text(nanoseconds: int) -> bytes:
    """A duration in seconds, as a number with six digits, or nine where nanoseconds are not zero."""
    seconds, rest = divmod(abs(nanoseconds), 10**9)
    digits = f"{rest:09d}"
    sign = "-" if nanoseconds < 0 else ""
    return f"{sign}{seconds}.{digits.removesuffix('000') if rest % 1000 == 0 else digits}".encode()


def non_finite_name(number: float) -> str:
    """How NaN and the infinities are called in texts."""
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
