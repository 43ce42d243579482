"""What publishers and workers of a queue group have seen. Times are seconds of a monotonic clock."""

from dataclasses import dataclass, field

from tests.cluster.group_storms.common_history import Fault, Published, key_and_index


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
        return key_and_index(self.value)[0]

    @property
    def index(self) -> int:
        """Which of its key it is."""
        return key_and_index(self.value)[1]


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
class Unanswered:
    """A claim of so many messages of which nobody has told what became of it."""

    most: int
    asked_at: float
    ended_at: float


@dataclass(slots=True)
class QueueHistory:
    """All of it, in the order in which it was written down."""

    published: list[Published] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    wrong_answers: list[str] = field(default_factory=list)
    scattered: int = 0
    """How many claims had several ranges."""
