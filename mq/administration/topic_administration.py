"""Creates, configures and deletes topics, and splits and merges their segments on request."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from filer.clock import Clock
from filer.errors import BraidError, InvalidConfig, Remedy
from filer.event_log import EventLog
from filer.keys import check_name
from filer.topic.catalogue import Catalogue, TopicRecord
from filer.topic.topic_config import AT_CREATION, FIXED_FIELDS, TopicConfig, parse_config
from filer.topic.topic_state import Segment, TopicState
from leader.membership.coordinator import Coordinator
from leader.transitions import NewGroup, new_topic, recreated
from mq.administration.memberships import Memberships
from mq.base.errors import Conflict, NotFound, TopicExists
from mq.base.internal_topics import check_new_name
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.transitions.segment_placement import SegmentPlacement
from mq.transitions.split_merge_requests import MergeRequest, SplitRequest, carry_out
from mq.transitions.state_broadcast import StateBroadcast
from mq.transitions.transition_executor import TransitionExecutor

_log = EventLog(__name__)


class Difference(NamedTuple):
    """A setting that was ignored: the value in the request, and the topic's value."""

    wanted: Any
    actual: Any


@dataclass(frozen=True, slots=True)
class Put:
    """Whether a request for a topic `created` it, and if it did not, how the topic `differs` from the request."""

    created: bool
    differs: Mapping[str, Difference] = field(default_factory=dict)


class TopicAdministration:
    """Carries out requests about topics. Any broker does it for any topic.

    Each creation waits for a `turn` before each of its steps: other requests are served between those of many
    creations.
    """

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        clock: Clock,
        coordinator: Coordinator,
        topics: TopicRegistry,
        executor: TransitionExecutor,
        placement: SegmentPlacement,
        broadcast: StateBroadcast,
        memberships: Memberships,
        segments_per_request: int,
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        self._memberships, self._turn = memberships, turn
        self._segments_per_request = segments_per_request
        self._catalogue, self._clock, self._coordinator = catalogue, clock, coordinator
        self._topics, self._executor, self._placement, self._broadcast = topics, executor, placement, broadcast

    async def put(self, name: str, body: Mapping[str, Any], *, only_new: bool = False) -> tuple[TopicRuntime, Put]:
        """Create a topic or change its configuration. With `only_new`, a topic that exists is left alone.

        A program may do this whenever it starts: the number of segments counts only at creation, and is ignored later.
        Raises `InvalidName`, `InternalTopic` for a new topic whose name is kept for brokers, `InvalidConfig`,
        `Conflict` for a change of a setting that cannot change, and `TopicExists`.
        """
        check_name(name)
        settings = dict(body)
        segments = settings.pop(AT_CREATION, None)
        async with self._executor.lock(name):
            record = await self._record_of(name)
            if record is None or record.state.deleted:
                await self._check_free(record)
                config = parse_config(settings)
                if await self.create(name, record.state if record else None, config, segments):
                    return await self._topics.topic(name), Put(created=True)
                await self._topics.refresh(name)  # another broker has just created it
                state = (await self._topics.topic(name)).state
            else:
                state = record.state
            if only_new:
                raise TopicExists(f"topic {name!r} exists", Remedy("configure-topic"))
            if state.is_grouped:
                raise Conflict(
                    "topic-conflict",
                    f"{name!r} is a topic group",
                    Remedy("configure-topic-group", topic_group=name),
                )
            differs = ignored(AT_CREATION, segments, len(state.open_segments))
            return await self.reconfigure(state, settings), Put(created=False, differs=differs)

    async def _record_of(self, name: str) -> TopicRecord | None:
        """Return the record of a topic that may be there; None if there is none, or was none a moment ago.

        A name without anything on the store needs no further look: a request that creates the topic does so only if
        there still is no record.
        """
        return (
            None
            if name not in self._topics and await self._catalogue.is_free(name)
            else await self._catalogue.read(name)
        )

    async def _check_free(self, record: TopicRecord | None) -> None:
        """Raise `Conflict` if a name without segments of its own is that of a member of a topic group."""
        member_of = None if record is None else record.state.member_of
        if record is not None and member_of is not None and await self._memberships.counts(member_of):
            raise Conflict(
                "topic-conflict",
                f"{record.state.topic!r} is a member of topic group {member_of.group!r}, and cannot have segments of "
                "its own",
                Remedy("configure-its-topic-group", topic_group=member_of.group),
            )

    async def ensure(self, name: str, config: TopicConfig) -> TopicRuntime:
        """Return the running topic, whatever its configuration; creates it with this one if there is none.

        Any number of brokers may do it at once: one of them creates it. `replicas` may be more than there are brokers:
        the leader gives its segments followers as brokers come. Stopped at any line, there is the whole topic, which is
        one object, or none. Raises `InvalidConfig` while no broker could own it, and as `TopicRegistry.topic`.
        """
        async with self._executor.lock(name):
            record = await self._catalogue.read(name)
            if record is None or record.state.deleted:
                await self._check_free(record)
                self._check_servable(1)
                before, count = record.state if record else None, config.min_segments
                if await self._create(name, before, config, count, None):
                    _log.info("topic_created", topic=name, segments=count)
            await self._topics.refresh(name)
            return await self._topics.topic(name)

    async def delete(self, name: str) -> None:
        """Seal all segments and leave a tombstone; the files go after the grace period. Raises `NotFound`."""
        try:
            view = await self._topics.view(name)
        except NotFound as error:
            # Without the remedy, which is to create it.
            raise NotFound("topic", f"there is no topic {name!r}") from error
        if view.state.is_grouped:
            # Its messages lie in the files of all members: a name is given up with its group, or not at all.
            raise Conflict(
                "topic-group-member" if view.member is not None else "topic-conflict",
                f"{name!r} is {'a member of ' if view.member is not None else ''}topic group {view.runtime.topic!r}",
                Remedy("delete-topic-group", topic_group=view.runtime.topic),
            )
        await self._executor.delete(name)
        _log.info("topic_deleted", topic=name)

    async def split_or_merge(self, name: str, wanted: SplitRequest | MergeRequest) -> tuple[TopicState, list[Segment]]:
        """Split or merge segments. Returns the new state and the successors. Raises `NotFound`, and as `carry_out`."""
        runtime = await self._topics.topic(name)
        if isinstance(wanted, SplitRequest):
            _check_splittable(runtime.state)
            parts = wanted.parts if wanted.at is None else len(wanted.at) + 1
            if parts <= runtime.state.config.max_segments:
                self._check_bounded(parts, "the number of parts")
        if runtime.state.segment(wanted.segment) is None:
            # The client may know of a transition that this broker has not read yet.
            with contextlib.suppress(BraidError):
                await runtime.refresh()
        return await carry_out(self._executor, self._placement, self._clock, runtime.state, wanted)

    async def create(
        self, name: str, before: TopicState | None, config: TopicConfig, segments: Any, group: NewGroup | None = None
    ) -> bool:
        """Create a topic with a free name: there is no record of it, or `before`, which leaves it free.

        The topic's lock is held. Returns False if it exists: another broker was faster. Raises `InvalidConfig`, and
        `InternalTopic` for a name that is kept for brokers.
        """
        check_new_name(name)
        self._check_servable(config.replicas)
        count = _segments_at_creation(segments, config)
        self._check_bounded(count, AT_CREATION if segments is not None else "min_segments")
        created = await self._create(name, before, config, count, group)
        if created:
            _log.info("topic_created", topic=name, segments=count)
        return created

    async def _create(
        self, name: str, before: TopicState | None, config: TopicConfig, count: int, group: NewGroup | None
    ) -> bool:
        await self._turn()
        now_us = self._clock.now_us()
        brokers_for = self._placement.brokers_for(name, config, count)
        fresh = new_topic(name, config, count, brokers_for, now_us=now_us, group=group)
        if before is None:
            created = await self._catalogue.create(fresh)
            if created is None:
                return False
            # Stopped here, the topic exists, and this broker reads it when a request asks for it.
            await self._turn()
            self._topics.apply(fresh, created=created)
            return True

        def again(state: TopicState) -> TopicState | None:
            # A membership that was not checked may be one that counts.
            if not state.deleted or state.member_of not in (None, before.member_of):
                return None
            return recreated(state, config, count, brokers_for, now_us=now_us, group=group)

        state = await self._catalogue.change(name, again)
        if state is None:
            return False
        self._topics.apply(state)
        return True

    async def reconfigure(self, state: TopicState, settings: Mapping[str, Any]) -> TopicRuntime:
        """Change the given settings of a topic that exists. Its lock is held. Raises `InvalidConfig` and `Conflict`."""
        wanted = parse_config(settings, base=state.config)
        self._check_servable(wanted.replicas)
        if wanted.min_segments > state.config.min_segments:
            # Missing segments are opened at once.
            missing = wanted.min_segments - len(state.open_segments)
            self._check_bounded(missing, f"min_segments is {wanted.min_segments}, and the number of missing segments")
        for name in FIXED_FIELDS:
            if getattr(wanted, name) != getattr(state.config, name):
                raise Conflict(
                    "topic-conflict",
                    f"{name} of topic {state.topic!r} is {getattr(state.config, name)!r} and cannot change: "
                    "files of that type are stored; create another topic",
                )

        def change(newest: TopicState) -> TopicState | None:
            config = parse_config(settings, base=newest.config)
            return None if config == newest.config else newest.model_copy(update={"config": config})

        changed = await self._catalogue.change(state.topic, change) or state
        self._topics.apply(changed)
        if names := _changed_settings(state.config, changed.config):
            _log.info("topic_configured", topic=state.topic, settings=names)
        if changed.version != state.version:
            # The leader opens segments for a larger min_segments at once; owners use the new windows of their averages.
            self._broadcast.broadcast(changed)
        return await self._topics.topic(state.topic)

    def _check_bounded(self, opened: int, what: str) -> None:
        """Raise `InvalidConfig` if a request would open too many segments at a time. Other requests wait meanwhile."""
        if opened > self._segments_per_request:
            raise InvalidConfig(
                f"{what} is {opened}: one request opens at most {self._segments_per_request} segments "
                "(--segments-per-request); begin with fewer, and add others by splits or by a larger min_segments"
            )

    def _check_servable(self, replicas: int) -> None:
        alive = len(self._coordinator.brokers())
        if replicas > alive:
            brokers = "is 1 broker" if alive == 1 else f"are {alive} brokers"
            raise InvalidConfig(f"replicas is {replicas}, but there {brokers}: at most {alive} can hold a copy")


def _check_splittable(state: TopicState) -> None:
    if state.group is not None and not state.group.splittable:
        raise Conflict(
            "not-splittable",
            f"topic group {state.topic!r} keeps one order across all its topics, so it has one segment",
            Remedy("create-splittable-to-split"),
        )


def _changed_settings(before: TopicConfig, after: TopicConfig) -> list[str]:
    return [name for name in TopicConfig.model_fields if getattr(before, name) != getattr(after, name)]


def ignored(name: str, wanted: Any, actual: int) -> dict[str, Difference]:
    """Return a request's settings that count only at creation, and so are ignored. Raises `InvalidConfig`."""
    if wanted is None:
        return {}
    _check_whole(wanted)
    return {} if wanted == actual else {name: Difference(wanted, actual)}


def _check_whole(segments: Any) -> None:
    if not isinstance(segments, int) or isinstance(segments, bool):
        raise InvalidConfig(f"{AT_CREATION}: a whole number is wanted, not {segments!r}")


def _segments_at_creation(segments: Any, config: TopicConfig) -> int:
    count = config.min_segments if segments is None else segments
    _check_whole(count)
    if not config.min_segments <= count <= config.max_segments:
        raise InvalidConfig(
            f"segments is {count}: it lies between min_segments ({config.min_segments}) "
            f"and max_segments ({config.max_segments})"
        )
    return count
