"""What one call of `mq publish` publishes, and how."""

from collections.abc import Sequence
from dataclasses import dataclass

from braidmq.json_rows.texts import NonFinite
from mq.cli.publishing.input_forms import Fields, Format


@dataclass(frozen=True, slots=True)
class Job:
    """As the options say."""

    topic: str
    key: bytes | None
    headers: dict[str, bytes | str]
    files: Sequence[str]
    form: Format | None
    fields: Fields
    nulls: Sequence[str]
    as_text: bool
    upload: bool
    non_finite: NonFinite
    dry_run: bool
    skip: int
