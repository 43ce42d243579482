"""How a topic.json shows to be older than an earlier one: by what this process has seen, and by the store.

Records go forward only: each compare-and-swap raises the version by one. So a record of a lower version than one that
was on the store, or of the same version with other content, was put back. And the record names each segment before the
segment has a file: `next_segment` goes up, or a bulk load is reserved, in a compare-and-swap that comes first. So a
folder of a segment that the record cannot know was written under a newer record. And brokers leave a mark of each
version that they find. The mark's name is the version (`Catalogue.mark`); a record of a lower version is older.

A record that was put back must not be changed: it would give new segments the names of files that are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from filer import keys
from filer.errors import CorruptFile
from filer.topic.topic_state import TopicState


class OlderRecord(CorruptFile):
    """A topic.json is older than one that was there before."""


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """A record that was on the store: its version, and the digest of its content if that is known."""

    version: int
    digest: str | None = None


class KnownRecords:
    """The newest record of each topic that this process knows of."""

    def __init__(self) -> None:
        self._newest: dict[str, KnownRecord] = {}

    def get(self, topic: str) -> KnownRecord | None:
        """The newest known record of a topic; None if none is known."""
        return self._newest.get(topic)

    def add(self, topic: str, version: int, digest: str | None = None) -> None:
        """A record of that version is, or was, on the store."""
        known = self._newest.get(topic)
        if known is None or known.version < version or (known.version == version and known.digest is None):
            self._newest[topic] = KnownRecord(version, digest)


def check_not_older(topic: str, version: int, digest: str, known: KnownRecord | None) -> None:
    """Raise `OlderRecord` for a record that was read after `known` was on the store, and is not as new."""
    if known is None or version > known.version:
        return
    if version == known.version and known.digest in (None, digest):
        return
    raise OlderRecord(
        f"{keys.topic(topic)} is of version {version}, but version {known.version} "
        f"{'with other content ' if version == known.version else ''}was there before: {_MEND}",
        key=keys.topic(topic),
    )


def check_covers(
    state: TopicState, folders: Sequence[str], histories: Sequence[str], marks: Sequence[str] = ()
) -> None:
    """Raise `OlderRecord` if the store had these segment folders, history files or marks of versions before the record
    was read, and the record cannot know of one of them.
    """
    unknown = [name for name in folders if (i := _segment_of(name)) is not None and not _may_exist(state, i)]
    unknown += [key for key in histories if (keys.history_bounds(key) or (0, 0))[1] >= state.next_segment]
    unknown += [key for key in marks if (keys.marked_version(key) or 0) > state.version]
    if unknown:
        raise OlderRecord(
            f"{keys.topic(state.topic)} is older than {unknown[0]!r}, which lies beside it: it is of version "
            f"{state.version} and its next segment is {state.next_segment}; {_MEND}",
            key=keys.topic(state.topic),
        )


_MEND = "somebody has put back an older one; put back the newest (docs/operations.md, Damaged and missing records)"


def _segment_of(folder: str) -> int | None:
    name, _, number = folder.rstrip("/").rpartition("=")
    return int(number) if name == "segment" and number.isdecimal() else None


def _may_exist(state: TopicState, segment: int) -> bool:
    """Whether a segment of that id may have files. The ids of a bulk load lie above all others."""
    return segment < state.next_segment or any(segment in load.segments for load in state.loads)
