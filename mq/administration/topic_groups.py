"""Creates topic groups, adds topics to them, and deletes them (docs/design.md §10)."""

from collections.abc import Mapping, Sequence
from typing import Any

from filer.errors import InvalidConfig, Remedy
from filer.event_log import EventLog
from filer.keys import check_name
from filer.topic.catalogue import Catalogue
from filer.topic.topic_config import AT_CREATION, TopicConfig, parse_config
from filer.topic.topic_state import Grouping, Membership, TopicState
from leader.transitions import NewGroup, with_topics
from mq.administration.memberships import Memberships
from mq.administration.topic_administration import Difference, Put, TopicAdministration, ignored
from mq.base.errors import Conflict, NotFound
from mq.base.internal_topics import check_new_name
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.transitions.state_broadcast import StateBroadcast
from mq.transitions.transition_executor import TransitionExecutor

MOST_TOPICS = 1000
"""The most of one group: its record names them, and each transition writes it anew."""
TOPICS, SPLITTABLE = "topics", "splittable"

_log = EventLog(__name__)


class TopicGroups:
    """Carries out requests about topic groups. Any broker does it for any group."""

    def __init__(
        self,
        catalogue: Catalogue,
        topics: TopicRegistry,
        executor: TransitionExecutor,
        administration: TopicAdministration,
        memberships: Memberships,
        broadcast: StateBroadcast,
    ) -> None:
        self._catalogue, self._topics, self._executor = catalogue, topics, executor
        self._administration, self._memberships, self._broadcast = administration, memberships, broadcast

    async def group(self, name: str) -> TopicRuntime:
        """Return the running group. Raises `NotFound`, `InvalidName`, and `Conflict` if that topic is no group."""
        try:
            view = await self._topics.view(name)
        except NotFound as error:
            remedy = Remedy("create-topic-group", topic_group=name)
            raise NotFound("topic-group", f"there is no topic group {name!r}", remedy) from error
        if view.member is not None or not view.state.is_grouped:
            raise _no_group(name, None if view.member is None else view.runtime.topic)
        return view.runtime

    async def pending(self, runtime: TopicRuntime) -> list[str]:
        """Return the named topics that have not joined the group: the request was stopped, or the name was taken.

        Such a topic may join when the group is put again.
        """
        found: list[str] = []
        for name in runtime.state.group.topics if runtime.state.group is not None else ():
            try:
                view = await self._topics.view(name)
            except NotFound:
                found.append(name)
            else:
                if view.member is None or view.runtime is not runtime:
                    found.append(name)
        return found

    async def put(self, name: str, body: Mapping[str, Any]) -> tuple[TopicRuntime, Put]:
        """Create a group of topics, add topics to it, or change its settings; or all of these at once.

        The group's record names the topics first, then each of them joins: stopped anywhere, the same request goes on.
        The request is checked before anything is written. Topics that it does not name stay. Raises `InvalidName`,
        `InternalTopic`, `InvalidConfig`, and `Conflict` for a name that is taken and for a setting that cannot change.
        """
        check_name(name)
        settings = dict(body)
        topics = checked_topics(settings.pop(TOPICS, None), name)
        splittable, segments = _checked_splittable(settings.pop(SPLITTABLE, None)), settings.pop(AT_CREATION, None)
        async with self._executor.lock(name):
            record = await self._catalogue.read(name)
            before = None if record is None else record.state
            if before is not None:
                await self._check_group_or_free(before)
            await self._memberships.check_free(topics, name)
            if before is None or before.deleted:
                put = await self._create(name, before, topics, splittable, segments, settings)
            else:
                put = await self._extend(before, topics, splittable, segments, settings)
            runtime = await self.group(name)
            grouping = runtime.state.group
            assert grouping is not None
            await self._memberships.join(topics, Membership(group=name, first_segment=grouping.first_segment))
        return runtime, put

    async def _check_group_or_free(self, state: TopicState) -> None:
        """Raise `Conflict` if a name is that of a topic, or of a member of a group."""
        if not state.deleted and not state.is_grouped:
            raise _no_group(state.topic, None)
        if state.member_of is not None and await self._memberships.counts(state.member_of):
            raise _no_group(state.topic, state.member_of.group)

    async def _create(
        self,
        name: str,
        before: TopicState | None,
        topics: Sequence[str],
        splittable: bool | None,
        segments: Any,
        settings: Mapping[str, Any],
    ) -> Put:
        if not topics:
            raise InvalidConfig(f"{TOPICS} is missing", Remedy("create-with-topics"))
        splittable = bool(splittable)
        config = _config(settings, None, splittable=splittable)
        if not splittable and segments not in (None, 1):
            raise _one_segment(AT_CREATION, segments)
        if not await self._administration.create(name, before, config, segments, NewGroup(tuple(topics), splittable)):
            # Another broker has just created a topic or group of that name. It may be this very group.
            await self._topics.refresh(name)
            return await self._extend((await self.group(name)).state, topics, splittable, segments, settings)
        _log.info("topic_group_created", topic=name, topics=len(topics))
        return Put(created=True)

    async def _extend(
        self,
        state: TopicState,
        topics: Sequence[str],
        splittable: bool | None,
        segments: Any,
        settings: Mapping[str, Any],
    ) -> Put:
        """Add topics to a group that exists, and change its settings."""
        name, grouping = state.topic, state.group
        assert grouping is not None
        if len({*grouping.topics, *topics}) > MOST_TOPICS:
            raise InvalidConfig(f"{TOPICS}: a topic group has at most {MOST_TOPICS}, with those that it has already")
        _config(settings, state.config, splittable=grouping.splittable)
        differs = _differences(grouping, topics, splittable)
        differs |= ignored(AT_CREATION, segments, len(state.open_segments))
        await self._administration.reconfigure(state, settings)
        changed = await self._catalogue.change(name, lambda newest: with_topics(newest, topics))
        if changed is not None:
            self._topics.apply(changed)
            if changed.version != state.version:
                self._broadcast.broadcast(changed)
        return Put(created=False, differs=differs)

    async def delete(self, name: str) -> None:
        """Delete a group with all its topics: their names are free once its record says so. Raises `NotFound`.

        That is the deletion of a topic, and one compare-and-swap: before it all are there, after it none is.
        """
        await self.group(name)
        await self._executor.delete(name)
        _log.info("topic_deleted", topic=name)


def checked_topics(topics: Any, group: str) -> list[str]:
    """The names of topics in a request, sorted. Raises `InvalidConfig`, `InvalidName`, `InternalTopic`."""
    if topics is None:
        return []
    if not isinstance(topics, list) or not all(isinstance(each, str) for each in topics):
        raise InvalidConfig(f'{TOPICS}: a list of names is wanted, such as ["a", "b"], not {topics!r:.80}')
    if not 1 <= len(topics) <= MOST_TOPICS:
        raise InvalidConfig(f"{TOPICS}: a topic group has from 1 to {MOST_TOPICS} topics, not {len(topics)}")
    for each in topics:
        check_name(each)
        check_new_name(each)
    if len(set(topics)) < len(topics):
        twice = next(each for each in topics if topics.count(each) > 1)
        raise InvalidConfig(f"{TOPICS}: {twice!r} is named twice")
    if group in topics:
        raise InvalidConfig(f"{TOPICS}: {group!r} is the group's own name; its topics have other names")
    return sorted(topics)


def _checked_splittable(splittable: Any) -> bool | None:
    if splittable is not None and not isinstance(splittable, bool):
        raise InvalidConfig(f"{SPLITTABLE}: true or false is wanted, not {splittable!r:.80}")
    return splittable


def _config(settings: Mapping[str, Any], base: TopicConfig | None, *, splittable: bool) -> TopicConfig:
    """Return the configuration of a group; checks settings of splittable groups only. Raises `InvalidConfig`."""
    if splittable:
        return parse_config(settings, base=base)
    for each in ("min_segments", "max_segments"):
        if settings.get(each, 1) != 1:
            raise _one_segment(each, settings[each])
    return parse_config({**settings, "max_segments": 1}, base=base)


def _one_segment(setting: str, wanted: Any) -> InvalidConfig:
    return InvalidConfig(
        f"{setting} is {wanted!r:.80}: a topic group keeps one order across all its topics, so it has one segment",
        Remedy("create-splittable-with-segments"),
    )


def _differences(grouping: Grouping, topics: Sequence[str], splittable: bool | None) -> dict[str, Difference]:
    """Return how a request differs from an existing group in settings that it does not change."""
    found: dict[str, Difference] = {}
    if topics and not set(topics) >= set(grouping.topics):
        found[TOPICS] = Difference(list(topics), sorted({*grouping.topics, *topics}))
    if splittable is not None and splittable != grouping.splittable:
        found[SPLITTABLE] = Difference(splittable, grouping.splittable)
    return found


def _no_group(name: str, member_of: str | None) -> Conflict:
    what = "a topic that has segments of its own" if member_of is None else f"a member of topic group {member_of!r}"
    return Conflict("topic-conflict", f"{name!r} is not a topic group, but {what}")
