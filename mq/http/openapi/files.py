"""Files of segments, bulk loads, and the lines of streams."""

from typing import Literal

from pydantic import AwareDatetime

from mq.http.openapi.answer import ABSENT, Answer, Slots
from mq.http.openapi.messages import Message
from mq.http.openapi.problems import Problem


class SegmentFile(Answer):
    """A Parquet file with messages of a segment."""

    uri: str
    url: str | None
    """A presigned address, if the store has such."""
    segment: int
    base_offset: int
    end_offset: int
    count: int
    bytes: int
    first_timestamp: AwareDatetime
    last_timestamp: AwareDatetime
    sealed: bool


class FileList(Answer):
    """A page of the files of a topic, in reading order."""

    files: list[SegmentFile]
    next: str | None
    """The `after` of the next page."""


class SegmentFileList(Answer):
    """A page of the files of one segment."""

    files: list[SegmentFile]
    next_offset: int | None
    """The `offset` of the next page."""


class ReservedSegment(Answer):
    """A segment of a bulk load."""

    segment: int
    range: Slots
    prefix: str
    """The folder of its files on the store."""


class Reservation(Answer):
    """The segments that are reserved for a bulk load."""

    load: str
    timestamp: AwareDatetime
    """The time of all its messages."""
    expires: AwareDatetime
    digests: bool
    segments: list[ReservedSegment]


class ExistingFile(Answer):
    """A file that is there."""

    size: int
    etag: str


class FileTarget(Answer):
    """Where a file of a bulk load goes."""

    segment: int
    base_offset: int
    uri: str
    url: str
    method: Literal["PUT"]
    headers: dict[str, str]
    expires: AwareDatetime
    there: ExistingFile | None = ABSENT
    """There if the request has `look`: the file that is there."""


class FileTargets(Answer):
    """Where files of a bulk load go."""

    files: list[FileTarget]


class LoadedSegment(Answer):
    """A segment of a bulk load that is committed."""

    segment: int
    range: Slots
    end_offset: int


class LoadCommit(Answer):
    """A bulk load that is committed."""

    load: str
    version: int
    messages: int
    segments: list[LoadedSegment]


class ReservedLoad(Reservation):
    """A bulk load that is not committed."""

    state: Literal["reserved", "committing"]


class CommittedLoad(LoadCommit):
    """A bulk load that is committed."""

    timestamp: AwareDatetime
    expires: AwareDatetime
    digests: bool
    state: Literal["committed"]


class LoadFile(Answer):
    """A file of a bulk load that was stored."""

    segment: int
    base_offset: int
    size: int
    etag: str


class StreamLine(Answer):
    """A line of a subscription: a message, a sign of life, or the end."""

    marker: str
    """Where to go on."""
    message: Message = ABSENT
    keepalive: Literal[True] = ABSENT
    end: Literal["refused", "draining", "deleted", "expired", "unreadable"] = ABSENT
    problem: Problem = ABSENT
    """Of an `end`."""
