"""A claimed message as a program works on it."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self

from braidmq.consume.claims import Claim
from braidmq.consume.decisions import Ack, Outcome, Release, Taken, reason_of, short_reason
from braidmq.errors import ClientClosed, InvalidArgument
from braidmq.message import Message

STOPPED = Release("stopped", delay_seconds=0)
"""For messages whose work was not finished: another worker gets them at once."""
UNTOUCHED = Release("stopped", delay_seconds=0, untouched=True)
"""For messages whose work has not begun."""
BEHIND = Release("an earlier message of its key was given back", delay_seconds=0, untouched=True)
"""For messages whose work has not begun, and must not begin before the one ahead is done."""
GIVEN_BACK = (STOPPED, UNTOUCHED, BEHIND)
"""The outcomes that a worker decides by itself."""


class Desk(Protocol):
    """Takes the outcome of a delivery. `decide` may be called from any thread."""

    def decide(self, delivery: "BaseDelivery", outcome: Outcome) -> None:
        """Ack or release it in the background."""
        ...

    async def extend(self, delivery: "BaseDelivery", seconds: float | None) -> None:
        """Extend its lease. Raises `ClaimLost`."""
        ...


class BaseDelivery:
    """A message that was handed out to this worker, and to no other while its lease runs.

    The worker keeps the lease running until the message is acked or released. `message` is the message itself, and
    `deliveries` how often it was handed out, at least. With `is_lost` the lease has run out all the same (the brokers
    were away, or the process was stopped), and another worker may work on the message.
    """

    __slots__ = (
        "_desk",
        "claim",
        "deliveries",
        "in_handler",
        "is_begun",
        "is_lost",
        "message",
        "outcome",
        "sure_until_seconds",
        "turn_key",
    )

    def __init__(self, message: Message, claim: Claim, desk: Desk) -> None:
        self.message, self.claim, self._desk = message, claim, desk
        self.deliveries = claim.deliveries
        self.outcome: Outcome | None = None
        self.is_lost = False
        # Its key, if those of a key take turns; whether it was handed to the program, and to a handler that runs.
        self.turn_key: bytes | None = None
        self.is_begun = self.in_handler = False
        # By the worker's clock, its lease runs until then at least.
        self.sure_until_seconds = 0.0

    def __repr__(self) -> str:
        return f"<Delivery {self.id} of {self.topic}, no. {self.deliveries}>"

    @property
    def taken(self) -> Taken:
        """The name of its claim."""
        return Taken(self.claim.token, self.message.offset)

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self.message.topic

    @property
    def id(self) -> str:
        """`<segment>-<offset>`: unique within the topic, and the same at each delivery."""
        return self.message.id

    @property
    def key(self) -> bytes | None:
        """The key of the message."""
        return self.message.key

    @property
    def key_text(self) -> str | None:
        """The key as text. Raises `UnicodeDecodeError` if it is not UTF-8."""
        return self.message.key_text

    @property
    def value(self) -> bytes | None:
        """The value of the message; None for a null value and for one by reference, which is in `message.ref`."""
        return self.message.value

    @property
    def value_text(self) -> str | None:
        """The value as text. Raises `UnicodeDecodeError` if it is not UTF-8."""
        return self.message.value_text

    @property
    def headers(self) -> Mapping[str, bytes]:
        """The headers of the message."""
        return self.message.headers

    @property
    def timestamp(self) -> datetime:
        """When the message was published."""
        return self.message.timestamp

    def json(self) -> Any:
        """Return the value parsed as JSON; None for a null value. Raises `orjson.JSONDecodeError` if it is not JSON."""
        return self.message.json()

    def ack(self) -> None:
        """Note that the message is done. Acks are sent in the background, many at a time.

        It is durable when the worker's `flush` returns, or its `close`, or `run`; also when a loop over the worker
        ends. If the process is killed before, the message may be delivered again. Acking again does nothing. Raises
        `InvalidArgument` for a message that was released.
        """
        self._decide(Ack())

    def release(self, *, delay_seconds: float | None = None, dead: bool = False, reason: str = "released") -> None:
        """Give the message back, after `delay_seconds` (None: the group's back-off), or as a dead letter.

        `reason` goes into a dead letter (500 characters). Sent in the background, as acks are. Raises `InvalidArgument`
        for a message that was acked, or a delay below 0.
        """
        if delay_seconds is not None and not delay_seconds >= 0:
            raise InvalidArgument(f"delay_seconds is {delay_seconds:g}: it must be 0 or more")
        self._decide(Release(short_reason(reason), delay_seconds, dead))

    def end(self, error: BaseException | None) -> None:
        """Ack the message, or release it with the error, unless that is decided."""
        if self.outcome is not None:
            return
        if error is None:
            self._decide(Ack())
            return
        with suppress(ClientClosed):  # the error that ended the work says more
            self._decide(Release(reason_of(error)) if _is_failure(error) else STOPPED)

    def _decide(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            try:
                self._desk.decide(self, outcome)
            except ClientClosed:  # nothing is decided in a forked process
                self.outcome = None
                raise
        elif self.outcome != outcome:
            before = "acked" if isinstance(self.outcome, Ack) else "released"
            raise InvalidArgument(f"message {self.id} has been {before} already")


def _is_failure(error: BaseException) -> bool:
    """Whether the work has failed: a handler that is interrupted, or cancelled, has not tried to the end."""
    return isinstance(error, Exception)


class AsyncDelivery(BaseDelivery):
    """A message that was handed out to this worker: see `BaseDelivery`.

    `async with delivery:` acks it at the end, and releases it with the reason on an exception, which goes on.
    """

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(error)

    async def extend(self, seconds: float | None = None) -> None:
        """Make the lease run for so many seconds from now on; without a number, for the group's `lease_seconds`.

        The worker does so by itself while you work. Call it to learn whether the message is still yours: raises
        `ClaimLost` if it is not, and `InvalidConfig` for more than the group's `lease_seconds`.
        """
        await self._desk.extend(self, seconds)


Handler = Callable[[AsyncDelivery], Awaitable[object]]
