"""The common part of all kinds of subscription: credit, delivery and end."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import orjson
from pydantic import Field

from filer.errors import InvalidInput
from filer.topic.positions import MARKER_MAX_CHARS
from groups.settings import MOST_LEASE_SECONDS
from mq.broker import Broker
from mq.forms.json_form import JsonBody
from mq.forms.render import Part
from mq.http.sockets.answers import Answers
from mq.http.sockets.credit import MOST_CREDIT, Credit
from mq.http.sockets.requests import Id
from mq.http.sockets.wire import Wire

PAGE_ROWS, PAGE_BYTES = 1_000, 256 * 1024
"""The most that is delivered at once: a slow client holds no more."""
IDLE_SECONDS = 15.0
"""The time after which a subscription without messages reports its position."""


class SubscribeBody(JsonBody):
    """What to subscribe to: the topic from somewhere on, or a group."""

    EXAMPLE: ClassVar[str] = '{"from": "earliest", "credit": 500}'

    credit: Annotated[int, Field(ge=0, le=MOST_CREDIT)] = 0
    format: Literal["json", "arrow"] = "json"
    from_: Annotated[str | None, Field(alias="from", max_length=100)] = None
    marker: Annotated[str | None, Field(max_length=MARKER_MAX_CHARS)] = None
    group: Annotated[str | None, Field(max_length=200)] = None
    mode: Literal["queue", "stream"] | None = None
    member_id: Annotated[str | None, Field(max_length=200)] = None
    lease_seconds: Annotated[float | None, Field(ge=1, le=MOST_LEASE_SECONDS, allow_inf_nan=False)] = None

    def check(self) -> None:
        """Raise `InvalidInput` for fields that do not go together."""
        fitting = {None: {"from_", "marker"}, "queue": {"lease_seconds"}, "stream": {"member_id"}}[self.mode]
        for name in ("from_", "marker", "member_id", "lease_seconds"):
            if getattr(self, name) is not None and name not in fitting:
                told = "a topic" if self.mode is None else f"a {self.mode} group"
                raise InvalidInput(f"{name.rstrip('_')} is not for a subscription to {told}")
        if (self.group is None) != (self.mode is None):
            raise InvalidInput('group and mode go together: {"group": "billing", "mode": "queue"}, or "stream"')


class Outlet:
    """The way out for messages of a socket's subscriptions."""

    def __init__(self, broker: Broker, wire: Wire, answers: Answers) -> None:
        self.broker, self.wire, self.answers = broker, wire, answers


class Subscription(ABC):
    """One subscription of a socket. `start` answers the request, and `run` delivers until it ends."""

    group: str | None = None

    def __init__(self, outlet: Outlet, id_: Id, credit: int) -> None:
        self._outlet, self._broker = outlet, outlet.broker
        self.id, self.credit = id_, Credit(credit)

    @abstractmethod
    async def start(self) -> dict[str, Any]:
        """Check whether it can be served. Returns the answer for the client. Raises what `problem_of` knows."""

    @abstractmethod
    async def run(self) -> dict[str, Any]:
        """Deliver until there is no more. Returns the reason, as the client gets it."""

    def stopped(self, reason: str) -> dict[str, Any]:
        """The end that the client gets when the subscription is stopped for that reason."""
        return {"end": reason}

    async def release(self) -> None:
        """Give back what it holds, once it is over: nothing, unless it has something of its own."""
        return

    def tell(self, document: dict[str, Any]) -> None:
        """Send the client news of the subscription."""
        self._outlet.answers.write([orjson.dumps({"subscription": self.id, **self._outlet.answers.end(document)})])

    async def deliver(self, page: Sequence[Part], messages: int) -> None:
        """Deliver messages: a page as over HTTP, a JSON object, with the subscription's id and the credit left."""
        self.credit.spend(messages)
        first = memoryview(page[0])[1:]
        head = orjson.dumps({"subscription": self.id, "credit": self.credit.left})[:-1] + b","
        self._outlet.answers.write([head, first, *page[1:]])
        await self._outlet.wire.drained()

    async def deliver_arrow(self, page: Sequence[Part], messages: int, about: dict[str, Any]) -> None:
        """Deliver messages as an Arrow stream, behind a line with the other fields."""
        self.credit.spend(messages)
        told = {"subscription": self.id, "credit": self.credit.left, "count": messages, **about}
        self._outlet.answers.write([orjson.dumps(told) + b"\n", *page], is_text=False)
        await self._outlet.wire.drained()
