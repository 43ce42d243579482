"""The possible values of a load's options. The options import it too, so it imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from braidmq.json_rows.texts import NonFinite
from braidmq.times import EventTimeUnit


@dataclass(frozen=True, slots=True)
class Source:
    """What Spark reads. `table_format` is `table` for a table of Spark's catalogue."""

    path: str
    table_format: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that make a message. Without `value`, the whole row is the value, as JSON (docs/json-rows.md).

    `event_time_unit` is the unit of event times that are whole numbers, `non_finite` is what NaN becomes in JSON.
    """

    key: str | None
    value: str | None
    event_time: str | None = None
    order_by_event_time: bool = False
    event_time_unit: EventTimeUnit | None = None
    non_finite: NonFinite = "refuse"
