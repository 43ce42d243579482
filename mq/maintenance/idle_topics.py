"""Which topics a round of maintenance looks at: those in which something happens, and of the others a few in turn."""

from collections.abc import Hashable
from dataclasses import dataclass
from zlib import crc32

QUIET_ROUNDS = 2
"""A topic in which nothing has happened for so many rounds is idle."""


@dataclass(slots=True)
class _Look:
    """What was last seen of a topic, and the round in which it is looked at again."""

    mark: Hashable
    quiet_rounds: int
    due_round: int


class IdleTopics:
    """Tells which topics are due. With thousands of them, looking at all in each round would take most of a processor.

    A topic's `mark` differs once anything has happened in it that is known here: such a topic is due at once. What only
    time brings, or what other processes do unnoticed, is found when an idle topic's turn comes.
    """

    def __init__(self, *, booked_per_round: int) -> None:
        self._looks: dict[str, _Look] = {}
        self._round = 0
        # The last round for which topics are booked, and how many are.
        self._booked_round, self._booked = 0, 0
        self._booked_per_round = booked_per_round

    def begin_round(self) -> None:
        """Another round begins."""
        self._round += 1

    def is_due(self, topic: str, mark: Hashable) -> bool:
        """Whether this round is to look at the topic."""
        look = self._looks.get(topic)
        return look is None or look.due_round <= self._round or look.mark != mark

    def looked(self, topic: str, mark: Hashable, *, rest_rounds: int) -> None:
        """A round has looked at it, and found that nothing is to be done for `rest_rounds`, if nothing happens.

        `mark` is that from before the look: what has happened during it counts as news.
        """
        look = self._looks.get(topic)
        if look is None or look.mark != mark or rest_rounds <= 1:
            self._looks[topic] = _Look(mark, 0, self._round + 1)
            return
        look.quiet_rounds += 1
        if look.quiet_rounds < QUIET_ROUNDS:
            rest_rounds = 1
        elif look.quiet_rounds == QUIET_ROUNDS:
            # Topics made together are spread over the rounds.
            rest_rounds = 1 + crc32(topic.encode()) % rest_rounds
        look.due_round = self._round + rest_rounds

    def waits(self, topic: str, mark: Hashable) -> None:
        """A round has looked at it, and found work of which a round does only so much: it gets its turn."""
        if self._booked_round <= self._round or self._booked >= self._booked_per_round:
            self._booked_round, self._booked = max(self._round, self._booked_round) + 1, 0
        self._booked += 1
        self._looks[topic] = _Look(mark, 0, self._booked_round)

    def wake(self, topic: str) -> None:
        """Have the next round look at the topic."""
        self._looks.pop(topic, None)

    def wake_all(self) -> None:
        """Have the next round look at all of them."""
        self._looks.clear()
