"""The state of all groups of a part of `__groups`, as its records add up."""

from collections.abc import Mapping
from typing import Any

from filer.errors import CorruptFile
from groups.queue.progress import QueueProgress
from groups.records import (
    Checkpoint,
    Configured,
    Created,
    Deleted,
    Leases,
    Membership,
    Progress,
    Record,
    Redriven,
    Redriving,
    Reset,
    Snapshot,
    Source,
    Taken,
)
from groups.settings import GroupSettings, recorded_settings
from groups.stream.progress import StreamProgress

GroupProgress = QueueProgress | StreamProgress
"""The state of a group of either kind, as its records add up."""


def new_progress(
    group_id: str, settings: GroupSettings, positions: Mapping[int, int], source: Source | None = None
) -> GroupProgress:
    """The state of a group that begins at these positions, of the kind that its settings name."""
    kind = StreamProgress if settings.mode == "stream" else QueueProgress
    return kind(group_id, settings, positions, source)


class GroupFold:
    """Groups by key (`<topic>/<group>`). Give it the records in the order of the log."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupProgress] = {}
        self.records = self.segments = 0

    def add(self, key: str, record: Record) -> None:
        """Add a record. Raises `CorruptFile` for one that does not fit the records before."""
        self.records += 1
        try:
            self._add(key, record)
        except (KeyError, TypeError, ValueError) as error:
            kind = type(record).__name__.lower()
            raise CorruptFile(f"a record ({kind}) of group {key!r} does not fit those before it: {error!r}") from error

    def _add(self, key: str, record: Record) -> None:
        match record:
            case Created():
                settings = recorded_settings(record.settings)
                self.groups[key] = new_progress(record.id, settings, dict(record.positions), record.source)
            case Reset():
                if (before := self.groups.get(key)) is not None:
                    self.groups[key] = before.reset(record)
            case Snapshot():
                self.groups[key] = _from_plain(record.state)
            case Deleted():
                self.groups.pop(key, None)
            case Checkpoint():
                pass
            case _:
                # Reading begins at the first snapshot of any group. A group's records before its own snapshot are part
                # of that.
                if (group := self.groups.get(key)) is not None:
                    _add_to(group, record)


def _from_plain(state: Mapping[str, Any]) -> GroupProgress:
    kind = StreamProgress if state["settings"].get("mode") == "stream" else QueueProgress
    return kind.from_plain(state)


def _add_to(
    group: GroupProgress, record: Configured | Progress | Membership | Leases | Taken | Redriving | Redriven
) -> None:
    match group, record:
        case _, Configured():
            group.configure(recorded_settings(record.settings))
        case StreamProgress(), Membership():
            group.apply(record)
        case QueueProgress(), Progress():
            group.apply(record)
        case QueueProgress(), Leases():
            group.hand_over(record)
        case QueueProgress(), Taken():
            group.take()
        case QueueProgress(), Redriving() | Redriven():
            group.redrive(record)
        case _:
            raise TypeError(f"a {group.settings.mode} group has no such records")
