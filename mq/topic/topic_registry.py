"""The topics that run in this broker, by name."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, ValuesView

from filer.clock import Clock
from filer.errors import BraidError
from filer.event_log import EventLog
from filer.keys import check_name
from filer.stores.store_time import Moment
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import Coordinator
from mq.base.errors import Conflict, TopicNotFound
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_view import TopicView
from mq.traffic.topic_traffic import TopicTraffic

REREAD_SECONDS = 0.3
"""How long after the news of a changed record it is read.

The broker that changed it usually sends the record itself. It is read all the same, in case that message was lost, but
not while publishers wait for puts.
"""

_log = EventLog(__name__)


class TopicRegistry(Mapping[str, TopicRuntime]):
    """The running topics by name, including those that were deleted while they ran.

    `open_topic` makes the runtime of a topic from its state, and its moment of creation if this process has just
    created it. `on_applied` is called with every state given to `apply`, once the topic runs with it. Once `draining`
    is set, news of changed records are ignored. All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        clock: Clock,
        coordinator: Coordinator,
        *,
        open_topic: Callable[[TopicState, Moment | None], TopicRuntime],
        on_applied: Callable[[TopicState], None],
        draining: asyncio.Event,
    ) -> None:
        self._catalogue, self._clock, self._coordinator = catalogue, clock, coordinator
        self._open_topic, self._on_applied, self._draining = open_topic, on_applied, draining
        self._running: dict[str, TopicRuntime] = {}
        self._changed: set[str] = set()
        self._rereads: set[asyncio.Task[None]] = set()

    def __getitem__(self, name: str) -> TopicRuntime:
        return self._running[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._running)

    def __len__(self) -> int:
        return len(self._running)

    def values(self) -> ValuesView[TopicRuntime]:
        """Return the running topics: thousands are passed each second, and a `Mapping` would look each of them up."""
        return self._running.values()

    def traffic_of(self, name: str) -> TopicTraffic | None:
        """Return the traffic of a running topic; None for any other."""
        runtime = self._running.get(name)
        return None if runtime is None else runtime.traffic

    async def topic(self, name: str) -> TopicRuntime:
        """Return the running topic, which has segments of its own.

        Raises `NotFound`, `Conflict` for a member of a topic group, and `InvalidName` if no topic can have that name.
        """
        runtime = self._running.get(name)
        if runtime is not None and not runtime.state.deleted:
            return runtime
        view = await self.view(name)
        if view.member is not None:
            raise Conflict(
                "topic-group-member",
                f"topic {name!r} is a member of topic group {view.runtime.topic!r}, whose segments it shares: ask this "
                "of the group, by its own name",
            )
        return view.runtime

    async def view(self, name: str) -> TopicView:
        """Return a topic as users name it: a running topic, or a group's member. Raises `NotFound`, `InvalidName`."""
        if (view := self._known_view(name)) is not None:
            return view
        return await self.newest_view(name)

    async def newest_view(self, name: str) -> TopicView:
        """As `view`, by the present records. Also raises `StoreError`.

        Another broker may have created it, or created it again, or something else of that name.
        """
        await self.refresh(check_name(name))
        if (runtime := self._running.get(name)) is not None and (member_of := runtime.state.member_of) is not None:
            await self.refresh(member_of.group)
        if (view := self._known_view(name)) is not None:
            return view
        raise TopicNotFound(name)

    def _known_view(self, name: str) -> TopicView | None:
        """As `view`, by what is known here; None if no such topic is known.

        That may be a moment old. A group that was deleted meanwhile has no open segments: a caller that publishes to
        it, or waits for its messages, notices that, and looks again.
        """
        runtime = self._running.get(name)
        if runtime is None or not runtime.state.deleted:
            return None if runtime is None else TopicView(runtime)
        member_of = runtime.state.member_of
        group = None if member_of is None else self._running.get(member_of.group)
        if member_of is None or group is None or not group.state.has_member(member_of):
            return None
        return TopicView(group, name)

    def group_of(self, name: str) -> str | None:
        """Return the topic group of a member, by what is known here; None for any other name."""
        view = self._known_view(name)
        return None if view is None or view.member is None else view.runtime.topic

    def apply(self, state: TopicState, *, created: Moment | None = None) -> None:
        """Run the topic with this state, unless it runs with a newer one.

        `created`: this process has just made it (`Catalogue.create`).
        """
        self._catalogue.saw(state)
        runtime = self._running.get(state.topic)
        if runtime is None:
            self._running[state.topic] = self._open_topic(state, created)
            self._coordinator.follow(state.topic)
        else:
            runtime.apply(state)
        self._on_applied(state)

    async def refresh(self, name: str) -> None:
        """Read topic.json again: another process may have changed it."""
        if (runtime := self._running.get(name)) is not None:
            await runtime.refresh()
        elif (record := await self._catalogue.read(name)) is not None:
            self.apply(record.state)

    def record_changed(self, name: str) -> None:
        """Read the record of a running topic soon: another broker has changed it."""
        if name in self._running and name not in self._changed and not self._draining.is_set():
            self._changed.add(name)
            task = asyncio.create_task(self._reread(name), name=f"read the record of {name} again")
            self._rereads.add(task)
            task.add_done_callback(self._rereads.discard)

    async def _reread(self, name: str) -> None:
        await self._clock.sleep(REREAD_SECONDS)
        # A change announced from here on may be newer than the record being read.
        self._changed.discard(name)
        try:
            await self.refresh(name)
        except BraidError as error:
            _log.warning("topic_unreadable", topic=name, error=error)

    async def close(self) -> None:
        """Stop all topics; messages that they have not stored fail."""
        for task in self._rereads:
            task.cancel()
        await asyncio.gather(*self._rereads, return_exceptions=True)
        await asyncio.gather(*(runtime.close() for runtime in self._running.values()))
