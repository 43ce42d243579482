"""What this broker holds as a follower: the messages of other owners' segments that are not stored yet."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from filer.next_file import Accepted
from mq.errors import CopyGap, CopyRefused, FrontStoreFull
from mq.front_store import FrontStore


@dataclass(slots=True)
class _Copy:
    """One segment's unstored messages, without a gap up to `next`; `refused`: nothing is added any more."""

    entries: deque[Accepted] = field(default_factory=deque)
    next: int = 0
    refused: bool = False


class Copies:
    """Copies by topic and segment, within the front store's budget. All methods belong to the event loop's thread."""

    def __init__(self, front_store: FrontStore) -> None:
        self._front_store = front_store
        self._copies: dict[str, dict[int, _Copy]] = {}

    def take(self, topic: str, segment: int, entries: Sequence[Accepted], stored_end: int) -> int:
        """Hold what the owner accepted next; up to where it is held then.

        Everything before `stored_end` is on the store and need not be held. Repeating it changes nothing. Raises
        `CopyRefused` where we have helped to seal the segment, `CopyGap` where messages are missing before these, and
        `FrontStoreFull`.
        """
        copy = self._copy(topic, segment)
        if copy.refused:
            raise CopyRefused(f"segment {segment} of topic {topic!r} is being sealed")
        self._drop(copy, stored_end)
        for entry in entries:
            if entry.end <= copy.next:
                continue
            if entry.base != copy.next:
                raise CopyGap(f"segment {segment} of topic {topic!r} goes on at {copy.next}, not at {entry.base}")
            if not self._front_store.try_reserve(entry.held_bytes):
                raise FrontStoreFull("a follower has no room for a copy")
            copy.entries.append(entry)
            copy.next = entry.end
        return copy.next

    def held(self) -> list[tuple[str, int]]:
        """Topics and segments of which something is held."""
        return [(topic, n) for topic, copies in self._copies.items() for n, copy in copies.items() if copy.entries]

    def drop_stored(self, topic: str, segment: int, stored_end: int) -> None:
        """Everything before `stored_end` is on the store and need not be held; a refusal stays."""
        copy = self._copies.get(topic, {}).get(segment)
        if copy is not None:
            self._drop(copy, stored_end)

    def refuse(self, topic: str, segment: int) -> Sequence[Accepted]:
        """Take no more from the owner, for ever, and give what is held of its segment.

        From here on the owner can have nothing acknowledged that we do not hold, so the segment may be sealed in its
        stead. Stopping right after this loses nothing: we are then a follower that is gone.
        """
        copy = self._copy(topic, segment)
        copy.refused = True
        return tuple(copy.entries)

    def keep_only(self, topic: str, open_segments: Collection[int]) -> None:
        """All else of the topic is sealed or gone, so all of it is stored. A late owner is refused by its record."""
        copies = self._copies.get(topic, {})
        for segment in [each for each in copies if each not in open_segments]:
            self._front_store.release(sum(entry.held_bytes for entry in copies.pop(segment).entries))
        if not copies:
            self._copies.pop(topic, None)

    def _copy(self, topic: str, segment: int) -> _Copy:
        return self._copies.setdefault(topic, {}).setdefault(segment, _Copy())

    def _drop(self, copy: _Copy, stored_end: int) -> None:
        while copy.entries and copy.entries[0].end <= stored_end:
            self._front_store.release(copy.entries.popleft().held_bytes)
        copy.next = max(copy.next, stored_end)
