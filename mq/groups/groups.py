"""The consumer groups of a broker: which of them it coordinates, and which brokers coordinate the others."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from filer.clock import Clock
from filer.errors import BraidError, SegmentMoved
from filer.event_log import EventLog
from filer.keys import GROUPS_TOPIC, check_name
from filer.slots import slot_of
from filer.topic.topic_state import Segment, TopicState
from groups.fold import GroupProgress
from groups.queue.progress import QueueProgress
from groups.records import Redriving, key_of
from groups.stream.progress import StreamProgress
from mq.administration.topic_administration import TopicAdministration
from mq.base.errors import NotFound
from mq.groups.dead_letters import DeadLetters
from mq.groups.group_log import GroupLog
from mq.groups.group_records import Append
from mq.groups.group_source import GroupSource, MakeReader, newest_segment
from mq.groups.group_topic import ensure
from mq.groups.message_feed import Feed
from mq.groups.queue_group import QueueGroup
from mq.groups.redriver import Redriver
from mq.groups.segment_groups import Group, Known, SegmentGroups
from mq.groups.stream_group import StreamGroup
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_view import TopicView

TAKE_UP_TRIES = 3

_log = EventLog(__name__)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another broker owns the segment in which the group's key lies, as of that version of the record."""

    segment: int
    url: str | None
    version: int


class Groups:
    """The consumer groups of this broker. Belongs to one event loop.

    It goes with the segments of `__groups` (a `SegmentObserver`): while this broker owns one, it coordinates the groups
    whose keys lie in it. `make_reader` makes readers of topics, and of members of topic groups. `redriver` publishes
    dead letters again. `secret` returns the key with which the cluster signs claims, `rates` the traffic of a topic's
    segments in bytes per second.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        topics: TopicRegistry,
        administration: TopicAdministration,
        make_reader: MakeReader,
        url_of: Callable[[str], str | None],
        redriver: Redriver,
        secret: Callable[[], bytes],
        rates: Callable[[TopicRuntime], Awaitable[Mapping[int, float]]],
        clustered: bool,
    ) -> None:
        self._clock, self._topics, self._administration = clock, topics, administration
        self._make_reader, self._url_of, self._secret, self._clustered = make_reader, url_of, secret, clustered
        self._rates = rates
        self._dead_letters, self.redriver = DeadLetters(topics, administration), redriver
        self._segments: dict[int, SegmentGroups] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        # Topics whose groups are searched because of a newer state, and those with another new state since then.
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._changed: set[str] = set()

    # -- where a group is ------------------------------------------------------------------------------------

    async def coordinator(self, topic: str, group: str, *, make: bool) -> SegmentGroups | Elsewhere:
        """Return the coordinator of a group: the groups of a segment of this broker, once ready, or another broker.

        With `make`, creates the topic of all groups if there is none; else raises `NotFound`, since there is no group.
        Raises `SegmentMoved` while no broker coordinates it, and as `SegmentGroups.ready`.
        """
        key = key_of(check_name(topic), check_name(group, what="group"))
        if make:
            await self._topics.view(topic)
        try:
            runtime = await (ensure(self._topics, self._administration) if make else self._topics.topic(GROUPS_TOPIC))
        except NotFound as error:
            raise NotFound("group", f"topic {topic!r} has no group {group!r}") from error
        return await self._coordinator_of(runtime, await self._segment_of(runtime, slot_of(key.encode())))

    async def coordinators(self, topic: str) -> list[SegmentGroups | Elsewhere]:
        """Return the coordinators of the groups of a topic, each for a part of them. Raises as `coordinator`."""
        await self._topics.view(check_name(topic))
        try:
            runtime = await self._topics.topic(GROUPS_TOPIC)
        except NotFound:
            return []  # no group was ever created
        segments = [await self._segment_of(runtime, each.start_slot) for each in runtime.state.open_segments]
        return [await self._coordinator_of(runtime, segment) for segment in segments]

    async def _coordinator_of(self, runtime: TopicRuntime, segment: Segment) -> SegmentGroups | Elsewhere:
        if segment.id not in runtime.writers:
            return Elsewhere(segment.id, self._url_of(segment.owner), runtime.state.version)
        return await self._own(segment.id)

    async def own(self, segment: int, version: int) -> SegmentGroups:
        """Return the groups of a segment that another broker takes for ours. Raises `SegmentMoved` if it is not."""
        runtime = await self._topics.topic(GROUPS_TOPIC)
        if runtime.state.version < version:
            await runtime.refresh()
        return await self._own(segment)

    async def look_again(self) -> None:
        """Read the record of the topic of all groups again: the broker asked last no longer owns the segment."""
        with contextlib.suppress(BraidError):
            await self._topics.refresh(GROUPS_TOPIC)

    async def _own(self, segment: int) -> SegmentGroups:
        if (opening := self._opening.get(segment)) is not None:
            await asyncio.shield(opening)
        groups = self._segments.get(segment)
        if groups is None:
            raise SegmentMoved(f"segment {segment} of {GROUPS_TOPIC} is not ours")
        await groups.ready()
        return groups

    async def _segment_of(self, runtime: TopicRuntime, slot: int) -> Segment:
        """Return the open segment for that slot. In a broker without a cluster it has a writer here."""
        for _ in range(TAKE_UP_TRIES):
            found = next((s for s in runtime.state.open_segments if s.start_slot <= slot < s.stop_slot), None)
            if found is None:
                break
            if self._clustered or found.id in runtime.writers:
                return found
            await runtime.take_up([found.id])
        raise SegmentMoved(f"a segment of {GROUPS_TOPIC} is being moved; try again")

    def source(self, topic: str, progress: GroupProgress) -> GroupSource:
        """Return where the messages of a group of that topic are."""
        return GroupSource(topic, progress.source, self._topics, self._make_reader, partial(newest_segment, progress))

    def topic_changed(self, state: TopicState) -> None:
        """End the groups of a topic that is deleted, or was before: their records say nothing of a later topic.

        Stopped before that is stored, they are over still: the next request for one of them ends it.
        """
        if not (state.deleted or state.begins_at):
            return
        if any(each.has_groups_of(state.topic) for each in self._segments.values()):
            self._changed.add(state.topic)
            if state.topic not in self._ending:
                task = asyncio.create_task(self._end_over(state.topic), name=f"end groups of {state.topic}")
                self._ending[state.topic] = task
                task.add_done_callback(lambda _: self._ending.pop(state.topic, None))

    async def _end_over(self, topic: str) -> None:
        while topic in self._changed:
            self._changed.discard(topic)
            for groups in list(self._segments.values()):
                for name, _ in groups.of_topic(topic):
                    # The next request for it finds it to be over as well.
                    with contextlib.suppress(BraidError):
                        group = groups.find(topic, name)
                        if group is not None and await group.source.is_over():
                            await groups.end(group)

    def floors(self) -> dict[int, int]:
        """Return, for each of this broker's segments, the offset below which its records are not needed any more."""
        return {segment: floor for segment, groups in self._segments.items() if (floor := groups.floor) is not None}

    def known(self) -> list[Known]:
        """Return all groups that this broker coordinates, as far as it knows them by now."""
        return [each for segment in sorted(self._segments) for each in self._segments[segment].known()]

    # -- as the observer of its segments ---------------------------------------------------------------------

    def on_writer_opened(self, segment: int) -> None:
        """Begin to coordinate the groups of a segment."""
        task = asyncio.create_task(self._open(segment), name=f"coordinate the groups of segment {segment}")
        self._opening[segment] = task

        def opened(task: "asyncio.Task[None]") -> None:
            self._opening.pop(segment, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("groups_not_opened", segment=segment, error=error, traceback_of=error)

        task.add_done_callback(opened)

    def on_writer_closed(self, segment: int) -> None:
        """Stop coordinating the groups of a segment: another broker does that from now on, or none."""
        if (opening := self._opening.pop(segment, None)) is not None:
            opening.cancel()
        if (groups := self._segments.pop(segment, None)) is not None:
            task = asyncio.create_task(groups.close(), name=f"close the groups of segment {segment}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def before_seal(self, segment: int) -> None:
        """Write down what the next coordinator has to know. If that fails, the next one finds out by waiting."""
        if (groups := self._segments.get(segment)) is not None:
            await groups.hand_over()

    async def close(self) -> None:
        """End the groups of all segments."""
        for task in self._ending.values():
            task.cancel()
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
        for segment in [*self._opening, *self._segments]:
            self.on_writer_closed(segment)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _open(self, segment: int) -> None:
        runtime = await self._topics.topic(GROUPS_TOPIC)
        writer = runtime.writers.get(segment)
        if writer is not None and not writer.has_stopped:
            log = GroupLog(runtime, segment, writer, self._make_reader(TopicView(runtime)))
            self._segments[segment] = SegmentGroups(log, self._clock, self._make_group)

    def _make_group(
        self,
        topic: str,
        name: str,
        progress: GroupProgress,
        *,
        append: Append,
        on_lost: Callable[[BaseException], None],
    ) -> Group:
        source = self.source(topic, progress)
        if isinstance(progress, StreamProgress):
            return StreamGroup(
                topic,
                name,
                progress,
                clock=self._clock,
                append=append,
                source=source,
                rates=self._rates,
                on_lost=on_lost,
            )
        return QueueGroup(
            topic,
            name,
            progress,
            clock=self._clock,
            append=append,
            source=source,
            feed=Feed(name, source.view, self._make_reader),
            bury=partial(self._dead_letters.store, source, name),
            publish_again=partial(self._publish_again, source, name),
            on_lost=on_lost,
            secret=self._secret(),
        )

    async def _publish_again(
        self, source: GroupSource, name: str, progress: QueueProgress, redriving: Redriving
    ) -> None:
        await self.redriver.publish(source, name, progress.redrives, redriving)
