"""Where a read begins, in the form that brokers accept."""

from datetime import datetime

from braidmq.errors import InvalidArgument
from braidmq.times import rfc3339


def start_parameters(from_: str | datetime | None, marker: str | None) -> dict[str, str]:
    """Return the query parameters of a start that is not a marker. Raises `InvalidArgument` if both are given."""
    if marker is not None and from_ is not None:
        raise InvalidArgument("give either marker or from_, not both")
    if from_ is None:
        return {}
    return {"from": rfc3339(from_) if isinstance(from_, datetime) else from_}
