"""A consumer group, for programs that manage it."""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from itertools import islice
from typing import Literal, Unpack

from braidmq.consume.group_calls import GroupCalls
from braidmq.errors import InvalidArgument
from braidmq.group_settings import GroupSettings
from braidmq.models import GroupDescription, GroupMessage
from braidmq.read.start import start_parameters
from braidmq.short_tracebacks import short_tracebacks

_PAGE = 1000


@short_tracebacks
class AsyncGroup:
    """A consumer group of a topic, by its name: it need not exist."""

    def __init__(self, calls: GroupCalls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"AsyncGroup({self.topic!r}, {self.name!r})"

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._calls.topic

    @property
    def name(self) -> str:
        """Its name."""
        return self._calls.group

    async def create(
        self, *, from_: str | datetime | None = None, **settings: Unpack[GroupSettings]
    ) -> GroupDescription:
        """Create the group, or change the settings of an existing one: `lease_seconds=60`, ….

        A new group begins at `from_`: `"earliest"` (the default), `"latest"` or a time; an existing one stays where it
        is. `created` of the answer says whether it is new. Raises `TopicNotFound`, and `InvalidConfig`, which names the
        nearest known setting.
        """
        return await self._calls.put({**start_parameters(from_, None), **settings})

    async def describe(self) -> GroupDescription:
        """Return its settings, its lag (messages, seconds), and counts of messages. Raises `GroupNotFound`."""
        return await self._calls.describe()

    async def messages(
        self, state: Literal["backlog", "in_flight", "dead"], *, limit: int | None = None
    ) -> AsyncIterator[GroupMessage]:
        """Look at messages without claiming them: waiting ones, those of workers, or dead letters, `limit` at most.

        Dead letters are those that were neither redriven nor discarded. Raises `GroupNotFound`.
        """
        left, after = limit, None
        while left is None or left > 0:
            page, after = await self._calls.messages(state, after, _PAGE if left is None else min(left, _PAGE))
            for each in page:
                yield each
            left = None if left is None else left - len(page)
            if after is None:
                return

    async def redrive(
        self, ids: Iterable[str] | None = None, *, limit: int | None = None, discard: bool = False
    ) -> int:
        """Publish dead letters to their topic again, once each; returns how many.

        All of them, the oldest `limit`, or those with these `ids` (as `messages("dead")` returns them). Those of the
        ids that were redriven before do not count. With `discard` they are published nowhere, and no longer listed.
        Raises `GroupNotFound`, and `InvalidRequest` for an id that is no dead letter of the group.
        """
        if ids is not None and limit is not None:
            raise InvalidArgument("give either ids or limit")
        if limit is not None:
            # By their ids: if the answer is lost, a repeat takes no others.
            ids = [each.id async for each in self.messages("dead", limit=limit)]
        count, has_more = 0, ids is None
        while has_more:
            redriven, has_more = await self._calls.redrive({"max": _PAGE, "discard": discard})
            count += redriven
        rest = iter(ids or ())
        while some := list(islice(rest, _PAGE)):
            count += (await self._calls.redrive({"ids": some, "discard": discard}))[0]
        return count

    async def reset(
        self, to: str | datetime | None = None, *, marker: str | None = None, force: bool = False
    ) -> GroupDescription:
        """Make the group begin anew: at `"earliest"`, `"latest"`, a time, or at a marker.

        Earlier claims cannot be acked any more, and deliveries are counted anew. Raises `Conflict` while workers have
        messages, or wait for some, unless you `force` it: then their messages are handed out again. Raises
        `GroupNotFound`, and `InvalidArgument` unless one of `to` and `marker` is given.
        """
        if (to is None) == (marker is None):
            raise InvalidArgument("give either to (earliest, latest or a time) or marker")
        begin = {"marker": marker} if to is None else {"to": start_parameters(to, None)["from"]}
        return await self._calls.reset({**begin, "force": force})

    async def delete(self) -> None:
        """Delete the group; messages stay in their topics. Raises `GroupNotFound`."""
        await self._calls.delete()
