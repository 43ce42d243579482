"""The topics that a round of maintenance looks at: the active ones, and a few of the others in turn."""

from collections.abc import Hashable
from dataclasses import dataclass
from zlib import crc32

QUIET_ROUNDS = 2
"""A topic without an event for so many rounds is idle."""


@dataclass(slots=True)
class _Look:
    """The last look at a topic, and the round of the next one."""

    mark: Hashable
    quiet_rounds: int
    due_round: int


class IdleTopics:
    """Decides which topics are due. With thousands of them, a look at all in each round would take most of a processor.

    A topic's `mark` changes with each event that is known here: such a topic is due at once. Changes by time alone, or
    by other processes, are found when an idle topic's turn comes.
    """

    def __init__(self, *, booked_per_round: int) -> None:
        self._looks: dict[str, _Look] = {}
        self._round = 0
        # The last round that has topics booked, and how many.
        self._booked_round, self._booked = 0, 0
        self._booked_per_round = booked_per_round

    def begin_round(self) -> None:
        """Begin another round."""
        self._round += 1

    def is_due(self, topic: str, mark: Hashable) -> bool:
        """Whether this round is to look at the topic."""
        look = self._looks.get(topic)
        return look is None or look.due_round <= self._round or look.mark != mark

    def looked(self, topic: str, mark: Hashable, *, rest_rounds: int) -> None:
        """Note that a round has looked at it: nothing is to be done for `rest_rounds`, without an event.

        `mark` is from before the look: an event during the look counts as news.
        """
        look = self._looks.get(topic)
        if look is None or look.mark != mark or rest_rounds <= 1:
            self._looks[topic] = _Look(mark, 0, self._round + 1)
            return
        look.quiet_rounds += 1
        if look.quiet_rounds < QUIET_ROUNDS:
            rest_rounds = 1
        elif look.quiet_rounds == QUIET_ROUNDS:
            # Topics created together are spread over the rounds.
            rest_rounds = 1 + crc32(topic.encode()) % rest_rounds
        look.due_round = self._round + rest_rounds

    def waits(self, topic: str, mark: Hashable) -> None:
        """Note that a round has looked at it, and found more work than a round does: it gets its turn."""
        if self._booked_round <= self._round or self._booked >= self._booked_per_round:
            self._booked_round, self._booked = max(self._round, self._booked_round) + 1, 0
        self._booked += 1
        self._looks[topic] = _Look(mark, 0, self._booked_round)

    def wake(self, topic: str) -> None:
        """Make the next round look at the topic."""
        self._looks.pop(topic, None)

    def wake_all(self) -> None:
        """Make the next round look at all of them."""
        self._looks.clear()
