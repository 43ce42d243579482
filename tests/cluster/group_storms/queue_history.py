"""What publishers and workers of a queue group have seen. Times are seconds of a monotonic clock."""

from dataclasses import dataclass, field


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
class Delivered:
    """A message that a worker was given, in the `place`th position of an answer."""

    message: str
    value: str
    deliveries: int
    answer: int
    place: int
    asked_at: float
    received_at: float
    lease_seconds: float

    @property
    def key(self) -> str:
        """Its key."""
        return self.value.partition(" ")[0]

    @property
    def index(self) -> int:
        """Which of its key it is."""
        return int(self.value.partition(" ")[2])


@dataclass(frozen=True, slots=True)
class Decided:
    """An ack or a release of a delivery. `held` is None if nobody has told what became of it."""

    message: str
    deliveries: int
    verb: str
    sent_at: float
    answered_at: float
    held: bool | None


@dataclass(frozen=True, slots=True)
class Fault:
    """Something was broken, and whole again."""

    name: str
    began_at: float
    ended_at: float


@dataclass(slots=True)
class QueueHistory:
    """All of it, in the order in which it was written down."""

    published: list[Published] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    wrong_answers: list[str] = field(default_factory=list)
