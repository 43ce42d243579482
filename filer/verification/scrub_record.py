"""The scrub's record on the store: when it has read which segment of a topic, how far it is, and its findings.

It only saves work. Without it, or if it is damaged, the scrub reads the topic once more. So a process may stop between
any two writes: what was read since the last one is read again.
"""

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, ValidationError

from filer import keys
from filer.errors import EtagMismatch, ObjectExists, ObjectNotFound
from filer.stores.store import Store
from filer.verification.verdict import Condition

RECORDS = -1
"""Stands for the objects of a topic that belong to no segment: its record, its history, and the snapshots."""
MOST_FOUND = 100
"""How many findings of one segment are kept."""
_TRIES = 8


class _Kept(BaseModel):
    # A newer broker may write more than this one knows.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Finding(_Kept):
    """An object that is damaged or missing, by its key."""

    key: str
    condition: Condition
    why: str


class Reading(_Kept):
    """A reading of a segment: when it began, up to which offset it has come, what it has read and found."""

    began_us: int
    reached: int = 0
    size_bytes: int = 0
    found: tuple[Finding, ...] = ()


class SegmentScrub(_Kept):
    """What is known of one segment.

    Everything that was stored before `read_us` has been read; 0 for a segment that was never read to its end.
    `size_bytes` is how much that read, and `found` what it found. `under_way` is a reading that has not ended.
    """

    segment: int
    read_us: int = 0
    size_bytes: int = 0
    under_way: Reading | None = None
    found: tuple[Finding, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        """The findings, and those of the reading under way so far, one for each object."""
        newest = () if self.under_way is None else self.under_way.found
        return list({each.key: each for each in (*self.found, *newest)}.values())


class ScrubRecord(_Kept):
    """What is known of one topic, segment by segment."""

    segments: tuple[SegmentScrub, ...] = ()

    def of(self, segment_id: int) -> SegmentScrub:
        """What is known of a segment."""
        return next((each for each in self.segments if each.segment == segment_id), SegmentScrub(segment=segment_id))

    def with_segment(self, scrub: SegmentScrub) -> "ScrubRecord":
        """The record with this entry in the place of that segment's old one."""
        others = (each for each in self.segments if each.segment != scrub.segment)
        return ScrubRecord(segments=tuple(sorted((*others, scrub), key=lambda each: each.segment)))


async def read_scrub(store: Store, topic: str) -> ScrubRecord:
    """The record of a topic; an empty one if there is none, or none that can be read. Raises `StoreError`."""
    record, _ = await _read(store, topic)
    return record


async def change_scrub(store: Store, topic: str, decide: Callable[[ScrubRecord], ScrubRecord]) -> ScrubRecord:
    """Apply a pure change to the newest record; returns it as it was written. Raises `StoreError`."""
    key = keys.scrub_record(topic)
    for left in reversed(range(_TRIES)):
        record, etag = await _read(store, topic)
        wanted = decide(record)
        data = wanted.model_dump_json().encode()
        try:
            if etag is None:
                await store.create(key, data)
            else:
                await store.replace(key, data, etag=etag)
        except (ObjectExists, EtagMismatch):
            if not left:
                raise
            continue
        break
    return wanted


async def _read(store: Store, topic: str) -> tuple[ScrubRecord, str | None]:
    try:
        fetched = await store.get(keys.scrub_record(topic))
    except ObjectNotFound:
        return ScrubRecord(), None
    try:
        return ScrubRecord.model_validate_json(fetched.data), fetched.info.etag
    except ValidationError:
        return ScrubRecord(), fetched.info.etag
