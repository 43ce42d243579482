"""The input of one call of `mq publish`, and how to publish it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from braidmq.json_rows.texts import NonFinite
from braidmq.publish.encoding.delivery_times import DeliveryTimes
from mq.cli.publishing.input_forms import Fields, Format


@dataclass(frozen=True, slots=True)
class Job:
    """The options of the command."""

    topic: str
    key: bytes | None
    headers: Mapping[str, bytes]
    files: Sequence[str]
    form: Format | None
    fields: Fields
    nulls: Sequence[str]
    as_text: bool
    upload: bool
    non_finite: NonFinite
    dry_run: bool
    skip: int
    times: DeliveryTimes
