"""A verdict in numbers: what was acknowledged, lost, doubled, reordered, wrong in another way, and told."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields

from tests.cluster.checker.history import History

LOST = ("lost", "not seen", "gap", "skipped", "back in time", "never served", "not read", "impossible")
DOUBLED = ("doubled", "went back", "used twice")
REORDERED = ("out of order", "shuffled", "backwards", "entered early")


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of messages, and of complaints by what they mean. `told` are answers that named a damaged object."""

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    wrong: int = 0
    told: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Tally)))

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong."""
        return not (self.lost or self.doubled or self.reordered or self.wrong)


def tally(history: History, complaints: Iterable[str]) -> Tally:
    """The numbers of one history and the complaints about it."""
    counts = Counter(_meaning(complaint) for complaint in complaints)
    told = sum(len(visit.told) for reader in history.readers for visit in reader.visits)
    return Tally(
        history.count("acknowledged"), counts["lost"], counts["doubled"], counts["reordered"], counts["wrong"], told
    )


def _meaning(complaint: str) -> str:
    """What a complaint, which begins with topic and reader, says in the end."""
    parts = complaint.split(": ")
    for name, words in (("lost", LOST), ("doubled", DOUBLED), ("reordered", REORDERED)):
        if any(part in words for part in parts):
            return name
    return "wrong"
