"""One reading of a topic, alone or as a member of a group, and the forms in which messages can be printed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mq.cli.input.moments import Start

Form = Literal["lines", "json", "ndjson", "raw", "table"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The part of a topic to read.

    It starts at one of `start`, `marker` and the last `tail` messages. It ends at the present end of the topic, or at
    the start of a reading from the time `stop`, or after `limit` messages, or never. It has all messages, or those with
    a key. `patient` is whether it waits for brokers without end.
    """

    topic: str
    start: Start | None = None
    marker: str | None = None
    tail: int | None = None
    key: bytes | None = None
    stop: datetime | None = None
    until_end: bool = False
    limit: int | None = None
    patient: bool = True


@dataclass(frozen=True, slots=True)
class Membership:
    """The group, and the member that reads. It ends after `limit` messages, or when none came for `idle_seconds`."""

    topic: str
    group: str
    member_id: str | None = None
    limit: int | None = None
    idle_seconds: float | None = None
