"""The place of a consumer group's messages: in its topic, or among those of a topic group."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from filer.errors import BraidError
from filer.segment.read_room import ReadRoom
from filer.topic.positions import Positions
from groups.fold import GroupProgress
from groups.records import Source
from groups.stream.progress import StreamProgress
from mq.base.errors import NotFound
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_view import TopicView


class MakeReader(Protocol):
    """Makes a reader of the messages of a view."""

    def __call__(self, view: TopicView, *, streaming: bool = False, room: ReadRoom | None = None) -> TopicReader:
        """As `Broker.reader_of`."""
        ...


def source_of(view: TopicView) -> Source | None:
    """Return the source that a group which begins now has to remember; None if that is the topic itself."""
    grouping = view.state.group
    if view.member is None or grouping is None:
        return None
    return Source(view.runtime.topic, grouping.first_segment)


def newest_segment(progress: GroupProgress) -> int | None:
    """Return the newest segment that a group's records name; None if they name none."""
    left = progress.left if isinstance(progress, StreamProgress) else {}
    return max((*progress.segments, *left), default=None)


def _unknown() -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class GroupSource:
    """Finds the messages of a group of that `topic`, and never those of another owner of its name.

    A name may be that of a topic, then of a member of one topic group, then of another. Segments of all of these have
    the same ids, so a position in one says nothing of another. Hence the group's records contain its `source`, and the
    group is over once its name means something else. `model/group_sources.py` explores this.

    A topic that is deleted and created again never uses the id of a segment again. So the group is also over if the
    `newest` segment that its records name is of the topic before. That stays true for ever, wherever it is found out.
    """

    topic: str
    source: Source | None
    topics: TopicRegistry
    make_reader: MakeReader
    newest: Callable[[], int | None] = _unknown

    async def view(self) -> TopicView:
        """Return the topic, or the member. Raises `NotFound`: of a group, if it is over; of a topic, if there is none.

        This broker may not know yet what another broker has made of the name, so it reads the records again before the
        group is over.
        """
        view = await self.topics.view(self.topic)
        if self._is_other(view):
            view = await self.topics.newest_view(self.topic)
            if self._is_other(view):
                raise NotFound("group", f"{self.topic!r} is not the topic any more of which this was a group")
        return view

    def _is_other(self, view: TopicView) -> bool:
        """Whether the name means something else, by what this broker knows."""
        if source_of(view) != self.source:
            return True
        newest = self.newest()
        return self.source is None and newest is not None and newest < view.state.begins_at

    async def runtime(self) -> TopicRuntime:
        """Return the running topic that has the messages. Raises as `view`."""
        return (await self.view()).runtime

    async def is_over(self) -> bool:
        """Whether the name means something else by now, or the topic is deleted. Neither ever ends."""
        try:
            await self.view()
        except NotFound as error:
            return error.what == "group" or self._is_deleted()
        return False

    def _is_deleted(self) -> bool:
        """Whether the group's own topic is deleted. This broker may know an older topic than the one of the group."""
        runtime, newest = self.topics.get(self.topic), self.newest()
        if runtime is None or newest is None or self.source is not None:
            return False
        return runtime.state.deleted and newest < runtime.state.next_segment

    async def reader(self, *, streaming: bool = False, room: ReadRoom | None = None) -> TopicReader:
        """Return a reader of the group's messages alone. Raises as `view`."""
        return self.make_reader(await self.view(), streaming=streaming, room=room)

    async def whole_reader(self, *, room: ReadRoom | None = None) -> TopicReader:
        """Return a reader of all messages in the same segments, for callers that know the offsets. Raises as `view`."""
        return self.make_reader(TopicView(await self.runtime()), room=room)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a new group begins: in that source, at these positions."""

    source: Source | None
    positions: Positions


async def beginning(
    topics: TopicRegistry,
    make_reader: MakeReader,
    topic: str,
    positions: Callable[[TopicReader], Awaitable[Positions]],
) -> Beginning:
    """Return where a new group of a topic begins. Raises `NotFound`, and as `positions`.

    Reads the records again: the caller may know of a topic that this broker has not heard of. If the store does not
    answer, what is known has to do. A group that begins in a deleted topic is over as soon as that is known.
    """
    with suppress(BraidError):
        await topics.newest_view(topic)
    view = await topics.view(topic)
    # Before the positions: if the topic changes meanwhile they are of the later one, and this group is over.
    source = source_of(view)
    return Beginning(source, await positions(make_reader(view)))
