"""One reading of a topic, alone or as a member of a group, and the forms in which messages can be printed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mq.cli.input.moments import Start

Form = Literal["lines", "json", "ndjson", "raw", "table"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read of a topic.

    It starts at one of `start`, `marker` and the last `tail` messages. It ends at the present end of the topic, or
    where a reading from the time `stop` would start, or after `limit` messages, or never. It is of all messages, or of
    those with a key. `patient` is whether it waits for brokers without end.
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
    """As which member of which group to read. It ends after `limit` messages, or when none came for `idle_seconds`."""

    topic: str
    group: str
    member_id: str | None = None
    limit: int | None = None
    idle_seconds: float | None = None
