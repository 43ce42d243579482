"""Times: microseconds since the Unix epoch, `datetime`, and the text of RFC 3339. The one place that converts them."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

EARLIEST_US, LATEST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999. Other times have no RFC 3339 text, so a message that has one could not be shown."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Arithmetic and text are faster without a time zone, and rendering a message takes both.
_NAIVE_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def rfc3339(time_us: int) -> str:
    """A time as `2024-05-01T12:00:00.000000Z`. Raises `OverflowError` outside the years 1 to 9999."""
    moment = _NAIVE_EPOCH + timedelta(microseconds=time_us)
    return f"{moment.isoformat(timespec='microseconds')}Z"


def rfc3339_short(time_us: int) -> str:
    """As `rfc3339`, without the fraction of a time that has none: `2024-05-01T12:00:00Z`."""
    return rfc3339(time_us).replace(".000000Z", "Z")


def rfc3339_texts(times_us: "npt.NDArray[np.int64]") -> list[str]:
    """As `rfc3339`, of many times at once: a fifth of the time for each. Raises `OverflowError` as it does."""
    import numpy as np  # commands that show a single time start without it

    if len(times_us) and not EARLIEST_US <= times_us.min() <= times_us.max() <= LATEST_US:
        raise OverflowError("a time lies outside the years 1 to 9999")
    texts: list[str] = np.datetime_as_string(times_us.view("M8[us]"), unit="us", timezone="UTC").tolist()
    return texts


def parse_rfc3339(text: str) -> int:
    """Microseconds since the epoch. Raises `ValueError` for a time without an offset, and for any other text."""
    try:
        time_us = microseconds(datetime.fromisoformat(text))
    except OverflowError as error:
        raise ValueError(str(error)) from error
    if not EARLIEST_US <= time_us <= LATEST_US:
        raise ValueError(f"{text!r} lies outside the years 1 to 9999 of UTC")
    return time_us


def microseconds(moment: datetime) -> int:
    """Microseconds since the epoch. Raises `ValueError` for a moment without a time zone."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone")
    return (moment - EPOCH) // _MICROSECOND


def moment_of(time_us: int) -> datetime:
    """A time as a `datetime` in UTC. Raises `OverflowError` outside the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=time_us)
