"""What a judge says of a history."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, and figures."""

    complaints: list[str]
    figures: str


def spread(seconds: Iterable[float]) -> str:
    """The median and the longest."""
    found = sorted(seconds) or [0.0]
    return f"p50 {found[len(found) // 2]:.2f} s, max {found[-1]:.2f} s"
