"""When consumers of queue groups may get a message: as given, and as its headers say it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from braidmq.errors import InvalidArgument
from braidmq.times import microseconds
from filer.format.headers import DELIVER_AT, EXPIRES_AT, time_header, wrong_times

LONGEST_DELAY = timedelta(days=10 * 366)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class DeliveryTimes:
    """`deliver_at`, or a `delay` from now on, and `expires_at`: all of them may be missing."""

    deliver_at: datetime | None = None
    delay: timedelta | None = None
    expires_at: datetime | None = None

    def __bool__(self) -> bool:
        return self.deliver_at is not None or self.delay is not None or self.expires_at is not None

    def headers(self, now_us: int) -> tuple[tuple[str, bytes], ...]:
        """The headers for these times. Raises `InvalidArgument` for times without a zone, or that make no sense."""
        if self.delay is not None and self.deliver_at is not None:
            raise InvalidArgument("give delay or deliver_at, not both")
        deliver_at_us = None if self.deliver_at is None else microseconds(self.deliver_at)
        if self.delay is not None:
            deliver_at_us = now_us + delay_us(self.delay)
        return time_headers(deliver_at_us, None if self.expires_at is None else microseconds(self.expires_at), now_us)


def delay_us(delay: object) -> int:
    """A delay in microseconds. Raises `InvalidArgument`."""
    if not isinstance(delay, timedelta):
        raise InvalidArgument(f"a delay is a datetime.timedelta, and not {delay!r}")
    if not timedelta(0) <= delay <= LONGEST_DELAY:
        raise InvalidArgument(f"a delay is a timedelta from 0 to {LONGEST_DELAY.days} days, and not {delay}")
    return delay // _MICROSECOND


def time_headers(deliver_at_us: int | None, expires_at_us: int | None, now_us: int) -> tuple[tuple[str, bytes], ...]:
    """The headers of a message with these times. Raises `InvalidArgument` if they make no sense."""
    if (reason := wrong_times(deliver_at_us, expires_at_us, now_us)) is not None:
        raise InvalidArgument(reason)
    times = ((DELIVER_AT, deliver_at_us), (EXPIRES_AT, expires_at_us))
    return tuple(time_header(name, time_us) for name, time_us in times if time_us is not None)


def check_given_once(names: Iterable[str], times: Iterable[tuple[str, bytes]]) -> None:
    """Raise `InvalidArgument` if a header of these names has the same meaning as one of the times."""
    said = {name for name, _ in times}
    for name in names:
        if name.lower() in said:
            raise InvalidArgument(f"the header {name!r} says when the message is delivered, and so does an argument")
