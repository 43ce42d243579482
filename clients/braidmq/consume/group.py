"""A consumer group, for who manages it."""

from datetime import datetime
from typing import Unpack

from braidmq.consume.group_calls import GroupCalls
from braidmq.group_settings import GroupSettings
from braidmq.models import GroupDescription
from braidmq.read.start import start_parameters
from braidmq.short_tracebacks import short_tracebacks


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
        """Return its settings, its lag (messages, seconds), and what has become of messages. Raises `GroupNotFound`."""
        return await self._calls.describe()

    async def delete(self) -> None:
        """Delete the group; messages stay in their topics. Raises `GroupNotFound`."""
        await self._calls.delete()
