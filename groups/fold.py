"""All groups of a part of `__groups`, as its records add up."""

from filer.errors import CorruptFile
from groups.queue.progress import QueueProgress
from groups.records import (
    Checkpoint,
    Configured,
    Created,
    Deleted,
    Leases,
    Progress,
    Record,
    Reset,
    Snapshot,
    Taken,
)
from groups.settings import GroupSettings


class GroupFold:
    """Groups by key (`<topic>/<group>`). Give it the records in the order of the log."""

    def __init__(self) -> None:
        self.groups: dict[str, QueueProgress] = {}
        self.records = 0

    def add(self, key: str, record: Record) -> None:
        """Add a record up. Raises `CorruptFile` for one that does not fit what came before."""
        self.records += 1
        try:
            self._add(key, record)
        except (KeyError, TypeError, ValueError) as error:
            kind = type(record).__name__.lower()
            raise CorruptFile(f"a record ({kind}) of group {key!r} does not fit those before it: {error!r}") from error

    def _add(self, key: str, record: Record) -> None:
        match record:
            case Created():
                settings = GroupSettings.model_validate(record.settings)
                self.groups[key] = QueueProgress(record.id, settings, dict(record.positions))
            case Reset():
                if (before := self.groups.get(key)) is not None:
                    self.groups[key] = before.reset(record)
            case Snapshot():
                self.groups[key] = QueueProgress.from_plain(record.state)
            case Deleted():
                self.groups.pop(key, None)
            case Checkpoint():
                pass
            case _:
                # Reading begins where the first snapshot of any group lies: what a group has before its own is in that.
                if (group := self.groups.get(key)) is not None:
                    _add_to(group, record)


def _add_to(group: QueueProgress, record: Configured | Progress | Leases | Taken) -> None:
    match record:
        case Configured():
            group.configure(GroupSettings.model_validate(record.settings))
        case Progress():
            group.apply(record)
        case Leases():
            group.hand_over(record)
        case Taken():
            group.take()
