"""A verdict in numbers: what was acknowledged, what was wrong by each of the checks, and what was told."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields

from tests.cluster.checker.history import History

CHECKS = {
    "lost": ("lost", "not seen", "gap", "never served", "not read"),
    "doubled": ("doubled", "used twice"),
    "reordered": ("out of order", "shuffled", "backwards", "entered early"),
    "divergent": ("divergent", "changed", "phantom", "wrong key", "never sent", "garbled"),
    "skipped": ("skipped", "went back", "back in time", "impossible"),
    "answers": ("not refused", "moved", "miscounted", "answered otherwise", "repeat refused"),
    "alarms": ("false alarm",),
    "stopped": ("stopped",),
}
"""The words of complaints, by the check that they belong to."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of messages, and of complaints by check. `told` are answers that named a damaged object.

    `skipped` counts also where a reader was taken back, `answers` what producers were told wrongly, `alarms` errors
    that name an object which nobody had touched, `stopped` what did not go on in time, and `wrong` anything else.
    """

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    divergent: int = 0
    skipped: int = 0
    answers: int = 0
    alarms: int = 0
    stopped: int = 0
    wrong: int = 0
    told: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Tally)))

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong."""
        return not self.complaints

    @property
    def complaints(self) -> int:
        """How many there are."""
        return sum(getattr(self, each.name) for each in fields(self) if each.name not in ("acknowledged", "told"))


def tally(history: History, complaints: Iterable[str]) -> Tally:
    """The numbers of one history and the complaints about it."""
    counts = Counter(_meaning(complaint) for complaint in complaints)
    told = sum(len(visit.told) for reader in history.readers for visit in reader.visits)
    return Tally(acknowledged=history.count("acknowledged"), told=told, **counts)


def _meaning(complaint: str) -> str:
    """What a complaint, which begins with topic and reader, says in the end."""
    parts = complaint.split(": ")
    for name, words in CHECKS.items():
        if any(part in words for part in parts):
            return name
    return "wrong"
