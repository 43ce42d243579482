"""The sum of a stream group's records: members, their segments, and positions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from groups.records import Committed, Given, Membership, Reset, Source, source_from_plain, source_to_plain
from groups.settings import GroupSettings, recorded_settings

MOST_ENDED_EPOCHS = 100
"""So many ended epochs of a segment are remembered, so that a repeated commit gets the same answer again."""


@dataclass(slots=True)
class StreamSegment:
    """A segment that the group is in, or has left.

    It was given away `epoch` times, at last to that `start` of `member`; while that has no name, no member has had it.
    `accepted`: up to which position commits were accepted, by epoch. `ended_ms`: when each epoch was over.
    """

    position: int
    epoch: int = 0
    member: str = ""
    start: int = 0
    accepted: dict[int, int] = field(default_factory=dict)
    ended_ms: dict[int, int] = field(default_factory=dict)

    def commit(self, epoch: int, position: int) -> None:
        """Commit a position. Positions never go back, nor does what an epoch has committed."""
        self.position = max(self.position, position)
        self.accepted[epoch] = max(self.accepted.get(epoch, position), position)

    def skip(self, position: int) -> None:
        """Note that everything below is gone. For the member that has the segment, that is as if it were committed."""
        self.commit(self.epoch, position)

    def give(self, given: Given, at_ms: int) -> None:
        """Give the segment away. From here on, commits of the epoch before move nothing."""
        self.ended_ms[self.epoch] = at_ms
        self.epoch, self.member, self.start = given.epoch, given.member, given.start
        self.accepted[given.epoch] = self.position

    def forget(self, before_ms: int) -> None:
        """Forget the epochs that were over before then: no member repeats a commit of theirs any more.

        If there are too many, the first ones are forgotten too. A member that repeats a commit of theirs is refused.
        """
        extra = len(self.ended_ms) - MOST_ENDED_EPOCHS
        over = [(epoch, number < extra) for number, epoch in enumerate(self.ended_ms)]
        for epoch in [epoch for epoch, is_extra in over if is_extra or self.ended_ms[epoch] < before_ms]:
            del self.ended_ms[epoch]
            self.accepted.pop(epoch, None)

    def to_plain(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "position": self.position,
            "epoch": self.epoch,
            "member": self.member,
            "start": self.start,
            "accepted": list(self.accepted.items()),
            "ended_ms": list(self.ended_ms.items()),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "StreamSegment":
        """From a snapshot."""
        return cls(
            plain["position"],
            plain["epoch"],
            plain["member"],
            plain["start"],
            dict(plain["accepted"]),
            dict(plain["ended_ms"]),
        )


class StreamProgress:
    """A stream group as its records describe it.

    `members`: the last start of each. `next_start`: that of the next one to join. `segments` are those that the group
    is in, and `left` those behind it, for as long as a commit of theirs may be repeated. `longest_session_ms`: no
    session that may still run is longer. `first_epoch`: segments that are entered were given away so many times before.
    `source` is where the group's messages are, if they are not in a topic of its own.
    """

    __slots__ = (
        "first_epoch",
        "id",
        "left",
        "longest_session_ms",
        "members",
        "next_start",
        "segments",
        "settings",
        "skipped_count",
        "source",
    )

    def __init__(
        self, group_id: str, settings: GroupSettings, positions: Mapping[int, int], source: Source | None = None
    ) -> None:
        self.id, self.settings, self.source = group_id, settings, source
        self.segments = {segment: StreamSegment(position) for segment, position in positions.items()}
        self.left: dict[int, tuple[int, StreamSegment]] = {}
        self.members: dict[str, int] = {}
        self.next_start = 1
        self.skipped_count = 0
        self.longest_session_ms = settings.session_ms
        self.first_epoch = 0

    def configure(self, settings: GroupSettings) -> None:
        """Use other settings from now on."""
        self.settings = settings
        self.longest_session_ms = max(self.longest_session_ms, settings.session_ms)

    def reset(self, record: Reset) -> "StreamProgress":
        """The next incarnation of the group, which begins where the record says.

        Its members go on. Its epochs begin above all earlier ones: no commit from before is taken for a later one.
        """
        fresh = StreamProgress(record.id, self.settings, {}, self.source)
        every = [*self.segments.values(), *(segment for _, segment in self.left.values())]
        fresh.first_epoch = 1 + max((each.epoch for each in every), default=self.first_epoch)
        fresh.segments = {segment: StreamSegment(at, fresh.first_epoch) for segment, at in record.positions}
        fresh.members, fresh.next_start = dict(self.members), self.next_start
        fresh.skipped_count, fresh.longest_session_ms = self.skipped_count, self.longest_session_ms
        return fresh

    def positions(self) -> dict[int, int]:
        """Where the group is, by segment: everything below is done."""
        return {segment: each.position for segment, each in self.segments.items()}

    def position_of(self, segment: int) -> int:
        """Where the group is in a segment, or was when it left it; 0 if it knows of none."""
        known = self._known(segment)
        return 0 if known is None else known.position

    @property
    def has_errands(self) -> bool:
        """Whether there is work although no client asks: sessions may end."""
        return bool(self.members)

    @property
    def is_moved_by_resets(self) -> bool:
        """Whether it was reset before, and never had a member: it shows how far another reader is."""
        return self.first_epoch > 0 and self.next_start == 1

    def accepted(self, segment: int, epoch: int) -> int:
        """Up to which position commits of that epoch were accepted, as far as it is known; else -1."""
        known = self._known(segment)
        return -1 if known is None else known.accepted.get(epoch, -1)

    def _known(self, segment: int) -> StreamSegment | None:
        known = self.segments.get(segment)
        if known is None and segment in self.left:
            _, known = self.left[segment]
        return known

    def apply(self, news: Membership) -> None:
        """Add a record."""
        for joined in news.joined:
            self.members[joined.member] = joined.start
            self.next_start = max(self.next_start, joined.start + 1)
        for gone in news.gone:
            if self.members.get(gone.member) == gone.start:
                del self.members[gone.member]
        for entered in news.entered:
            self.segments[entered.segment] = StreamSegment(entered.position, self.first_epoch)
        for skipped in news.skipped:
            self.segments[skipped.segment].skip(skipped.stop)
            self.skipped_count += skipped.stop - skipped.start
        self._commit(news.committed)
        for segment in news.left:
            self.left[segment] = (news.at, self.segments.pop(segment))
        for given in news.given:
            self.segments[given.segment].give(given, news.at)
            self.segments[given.segment].forget(news.at - self.longest_session_ms)
        for segment in [each for each, (at, _) in self.left.items() if at < news.at - self.longest_session_ms]:
            del self.left[segment]

    def _commit(self, committed: list[Committed]) -> None:
        for each in committed:
            self.segments[each.segment].commit(each.epoch, each.position)

    def to_plain(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "id": self.id,
            "settings": self.settings.in_force(),
            "segments": [[segment, each.to_plain()] for segment, each in self.segments.items()],
            "left": [[segment, at, each.to_plain()] for segment, (at, each) in self.left.items()],
            "members": list(self.members.items()),
            "next_start": self.next_start,
            "skipped_count": self.skipped_count,
            "longest_session_ms": self.longest_session_ms,
            "first_epoch": self.first_epoch,
            **source_to_plain(self.source),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "StreamProgress":
        """From a snapshot. Raises `KeyError` and `TypeError` for anything else."""
        progress = cls(plain["id"], recorded_settings(plain["settings"]), {}, source_from_plain(plain))
        progress.segments = {segment: StreamSegment.from_plain(each) for segment, each in plain["segments"]}
        progress.left = {segment: (at, StreamSegment.from_plain(each)) for segment, at, each in plain["left"]}
        progress.members = dict(plain["members"])
        progress.next_start, progress.skipped_count = plain["next_start"], plain["skipped_count"]
        progress.longest_session_ms, progress.first_epoch = plain["longest_session_ms"], plain["first_epoch"]
        return progress
