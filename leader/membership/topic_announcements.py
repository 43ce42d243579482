"""The topics that a broker announces and follows through ZooKeeper, and the work of the next round for them."""

from collections.abc import Iterable, Mapping

TOPICS_PER_ROUND = 100
ANNOUNCEMENTS_KEPT = 10_000


class TopicAnnouncements:
    """Waiting announcements, and the counters of the followed topics as they were last read."""

    def __init__(self) -> None:
        # Keys in order, without values: the newest last, each once.
        self._announcements: dict[str, None] = {}
        self._unread: dict[str, None] = {}
        self._counters: dict[str, int | None] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether the next round has something to do."""
        return bool(self._announcements or self._unread)

    def announce(self, topic: str) -> None:
        """Increment the topic's counter in the next round. If too many wait, the oldest are forgotten."""
        self._announcements.pop(topic, None)
        self._announcements[topic] = None
        while len(self._announcements) > ANNOUNCEMENTS_KEPT:
            del self._announcements[next(iter(self._announcements))]

    def follow(self, topic: str) -> None:
        """Read and watch the topic's counter from the next round on. Repeating it changes nothing."""
        if topic not in self._counters:
            self._counters[topic] = None
            self._unread[topic] = None

    def read_again(self, topic: str | None) -> None:
        """Read and watch the counter of a followed topic again; None stands for all topics."""
        wanted: Iterable[str] = self._counters if topic is None else (topic,)
        self._unread.update((each, None) for each in wanted if each in self._counters)

    def take(self) -> tuple[list[str], list[str]]:
        """The topics to announce and those to read in one round: the oldest, as many as fit. They wait no longer."""
        return _take(self._announcements), _take(self._unread)

    def put_back(self, announce: Iterable[str], read: Iterable[str]) -> None:
        """Let topics wait again, since the round failed. Incrementing or reading a counter twice does no harm."""
        self._announcements = dict.fromkeys(announce) | self._announcements
        self._unread = dict.fromkeys(read) | self._unread

    def apply(self, counters: Mapping[str, int]) -> list[str]:
        """Take the counters that a round has read; returns the topics with a changed counter."""
        changed = [topic for topic, counter in counters.items() if self._counters[topic] != counter]
        self._counters.update({topic: counters[topic] for topic in changed})
        return changed


def _take(waiting: dict[str, None]) -> list[str]:
    taken = list(waiting)[:TOPICS_PER_ROUND]
    for each in taken:
        del waiting[each]
    return taken
