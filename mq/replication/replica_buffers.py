"""The messages that this broker holds as a follower: those of other owners' segments that are not stored yet."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from filer.segment.next_file import Accepted
from mq.base.errors import CopyGap, CopyRefused, FrontStoreFull
from mq.limits.front_store import FrontStore


@dataclass(slots=True)
class _ReplicaBuffer:
    """One segment's unstored messages, without a gap up to `next`. After `refused` nothing is added any more."""

    entries: deque[Accepted] = field(default_factory=deque)
    next: int = 0
    refused: bool = False


class ReplicaBuffers:
    """Buffers by topic and segment, within the budget of the front store. Call all methods on the event loop."""

    def __init__(self, front_store: FrontStore) -> None:
        self._front_store = front_store
        self._buffers: dict[str, dict[int, _ReplicaBuffer]] = {}

    def take(self, topic: str, segment: int, entries: Sequence[Accepted], stored_end: int) -> int:
        """Hold the next messages that the owner accepted. Returns the end offset of the messages held.

        Everything before `stored_end` is on the store and need not be held. Repeating a call changes nothing. Raises
        `CopyRefused` if this broker has helped to seal the segment, `CopyGap` if messages before these are missing, and
        `FrontStoreFull`.
        """
        buffer = self._buffer(topic, segment)
        if buffer.refused:
            raise CopyRefused(f"segment {segment} of topic {topic!r} is being sealed")
        self._drop(buffer, stored_end)
        for entry in entries:
            if entry.end <= buffer.next:
                continue
            if entry.base != buffer.next:
                raise CopyGap(f"segment {segment} of topic {topic!r} goes on at {buffer.next}, not at {entry.base}")
            if not self._front_store.try_reserve(entry.held_bytes):
                raise FrontStoreFull("a follower has no room for a copy")
            buffer.entries.append(entry)
            buffer.next = entry.end
        return buffer.next

    def held(self) -> list[tuple[str, int]]:
        """Return the (topic, segment) pairs with messages held."""
        return [
            (topic, segment)
            for topic, buffers in self._buffers.items()
            for segment, buffer in buffers.items()
            if buffer.entries
        ]

    def drop_stored(self, topic: str, segment: int, stored_end: int) -> None:
        """Drop everything before `stored_end`, which is on the store. A refusal stays."""
        buffer = self._buffers.get(topic, {}).get(segment)
        if buffer is not None:
            self._drop(buffer, stored_end)

    def refuse(self, topic: str, segment: int) -> Sequence[Accepted]:
        """Take no more from the owner, for ever; returns the held messages of its segment.

        From here on the owner can have nothing acknowledged that this broker does not hold, so the segment may be
        sealed in its stead. Stopping right after this loses nothing: this broker is then a follower that is gone.
        """
        buffer = self._buffer(topic, segment)
        buffer.refused = True
        return tuple(buffer.entries)

    def keep_only(self, topic: str, open_segments: Collection[int]) -> None:
        """Drop all other segments of the topic: they are sealed or gone, so all of their messages are stored.

        An owner that is late is refused by the topic's record.
        """
        buffers = self._buffers.get(topic, {})
        for segment in [each for each in buffers if each not in open_segments]:
            self._front_store.release(sum(entry.held_bytes for entry in buffers.pop(segment).entries))
        if not buffers:
            self._buffers.pop(topic, None)

    def _buffer(self, topic: str, segment: int) -> _ReplicaBuffer:
        return self._buffers.setdefault(topic, {}).setdefault(segment, _ReplicaBuffer())

    def _drop(self, buffer: _ReplicaBuffer, stored_end: int) -> None:
        while buffer.entries and buffer.entries[0].end <= stored_end:
            self._front_store.release(buffer.entries.popleft().held_bytes)
        buffer.next = max(buffer.next, stored_end)
