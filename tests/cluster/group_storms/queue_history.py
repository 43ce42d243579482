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

    def with_nobody(self, max_deliveries: int) -> list[Published]:
        """The messages that no worker has, as far as workers know: never delivered, or given back since.

        A claim whose answer was lost may have been given them. One that is given back for the last time is a dead
        letter.
        """
        newest: dict[str, Delivered] = {}
        for each in self.delivered:
            before = newest.get(each.value)
            if before is None or before.deliveries <= each.deliveries:
                newest[each.value] = each
        given_back = {
            (each.message, each.deliveries)
            for each in self.decided
            if each.verb == "releases" and each.held is not False
        }

        def is_with_nobody(published: Published) -> bool:
            last = newest.get(published.value)
            if last is None:
                return True
            return last.deliveries < max_deliveries and (last.message, last.deliveries) in given_back

        return [each for each in self.published if is_with_nobody(each)]
