"""How many messages a worker claims at once."""

AHEAD_SECONDS = 0.5
"""So much work is claimed ahead: a round trip to the broker is shorter, and other workers hardly wait for it."""
_MOST_GROWTH = 8


class ClaimSize:
    """Claims as many messages ahead as are worked on in half a second, at most `most`.

    A slow worker claims a message when it is wanted, and leaves all others to other workers. A fast one claims many.
    `now_seconds` is a clock that never goes back.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ahead = 0
        self._taken = 0
        self._since_seconds: float | None = None

    def took(self, messages: int) -> None:
        """Count messages that were given to the program."""
        self._taken += messages

    def answered(self, now_seconds: float) -> None:
        """Begin to measure how fast the messages of a claim are taken."""
        self._since_seconds, self._taken = now_seconds, 0

    def wanted(self, waiting: int, ready: int, now_seconds: float) -> int:
        """How many messages to claim, while `waiting` are waited for and `ready` ones have not been taken; 0 for none.

        With work ahead, the next claim is made when half of it is gone.
        """
        ahead = self._measured(now_seconds)
        if not waiting and ready * 2 >= ahead:
            self._ahead = ahead
            return 0
        self._ahead = ahead
        return max(waiting + ahead - ready, 0)

    def is_half_gone(self, ready: int) -> bool:
        """Whether it is time to claim more, by the last measure; with `ready` messages that have not been taken."""
        return ready * 2 <= self._ahead

    def _measured(self, now_seconds: float) -> int:
        if self._since_seconds is None:
            return 0
        elapsed_seconds = max(now_seconds - self._since_seconds, 1e-6)
        most = min(self._most, max(self._ahead, 1) * _MOST_GROWTH)
        return min(int(self._taken * AHEAD_SECONDS / elapsed_seconds), most)
