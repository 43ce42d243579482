"""What the loads of both kinds of group write down. Times are seconds of a monotonic clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """A message that was acknowledged: the `index`th of its key. `due_at`: it is not to be delivered before."""

    key: str
    index: int
    answered_at: float
    due_at: float | None = None
    is_poison: bool = False

    @property
    def value(self) -> str:
        """What it says."""
        return f"{self.key} {self.index}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something was broken, and whole again."""

    name: str
    began_at: float
    ended_at: float


def key_and_index(value: str) -> tuple[str, int]:
    """What a message's value says of it."""
    key, _, index = value.partition(" ")
    return key, int(index)
