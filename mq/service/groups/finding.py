"""Finds the group of a request, and creates it if it does not exist."""

from contextlib import suppress
from typing import Any

from filer.errors import BraidError, Remedy
from filer.topic.positions import Positions
from groups.incarnations import Origin, maker_of
from groups.settings import GroupSettings, Mode, default_settings, parse_settings
from mq.base.errors import Conflict, NotFound
from mq.broker import Broker
from mq.groups.dead_letters import check_types, own_topic_refused, topic_group_refused
from mq.groups.group_room import MOST_OF_MAKER, Maker
from mq.groups.group_source import Beginning, beginning
from mq.groups.queue_group import QueueGroup
from mq.groups.segment_groups import Group, SegmentGroups
from mq.groups.stream_group import StreamGroup
from mq.service.groups.operations import Asked
from mq.service.start import start_positions
from mq.topic.topic_reader import TopicReader


async def existing_group(broker: Broker, groups: SegmentGroups, request: Asked[Any]) -> Group:
    """The group. Raises `NotFound`: of the topic, if that is gone; else of the group, also of one that is over."""
    group = groups.find(request.topic, request.group)
    if group is None or await group.source.is_over():
        await broker.topics.view(request.topic)
        raise NotFound(
            "group",
            f"topic {request.topic!r} has no group {request.group!r}",
            Remedy("create-group", topic=request.topic, group=request.group),
        )
    return group


async def found_group(groups: SegmentGroups, request: Asked[Any]) -> Group | None:
    """The group, if there is one. Deletes one that is over, so that another one may be created. Raises `SegmentMoved`.

    A group that is over belongs to a topic that is gone. Its acks and positions do not fit the topic of that name now.
    """
    group = groups.find(request.topic, request.group)
    if group is not None and await group.source.is_over():
        await groups.end(group)
        group = groups.find(request.topic, request.group)
    return group


async def made_group(broker: Broker, groups: SegmentGroups, request: Asked[Any], mode: Mode) -> Group:
    """The group. Creates it in that mode, with the mode's defaults, if it does not exist.

    Raises `InvalidConfig` for a group that a `PUT` without settings would not create either.
    """
    if (group := await found_group(groups, request)) is not None:
        return group
    settings = parse_settings({"mode": mode}, await defaults_of(broker, request.topic))
    await check_dead_letter(broker, request.topic, settings)
    group, _ = await groups.create(
        request.topic,
        request.group,
        settings,
        lambda: first_positions(broker, request.topic, None),
        maker_for(broker, request, by_claim=True),
    )
    return group


def maker_for(broker: Broker, request: Asked[Any], *, by_claim: bool) -> Maker:
    """The maker of a group by that request, and how many groups the policy in force allows it."""
    share = broker.quotas.share(request.principal) if request.principal else None
    most = None if share is None else share.limits.groups
    return Maker(Origin(maker_of(request.principal), by_claim), most or MOST_OF_MAKER)


async def defaults_of(broker: Broker, topic: str) -> GroupSettings:
    """The settings of a new group. Raises `NotFound` if the topic does not exist."""
    return default_settings(topic, (await broker.topics.view(topic)).state.config.acks)


async def check_dead_letter(
    broker: Broker, topic: str, settings: GroupSettings, known: GroupSettings | None = None
) -> None:
    """Raise `InvalidConfig` for a topic that takes no dead letters of that one. A missing one is created later.

    If a group's settings so far (`known`) name the same topic, the group keeps it, whatever has become of that topic.
    So a program that starts with a `PUT` goes on, and the group reports that its dead letters wait.
    """
    if settings.dead_letter is None:
        return
    if settings.dead_letter.topic == topic:
        # Its dead letters would come to the group again as new messages, without end.
        raise own_topic_refused(topic)
    with suppress(BraidError):
        await broker.topics.newest_view(settings.dead_letter.topic)
    with suppress(NotFound):
        view = await broker.topics.view(settings.dead_letter.topic)
        if view.member is not None or view.state.is_grouped:
            raise topic_group_refused(settings.dead_letter.topic)
        if known is None or settings.dead_letter != known.dead_letter:
            check_types((await broker.topics.view(topic)).shown, view.state)


async def first_positions(broker: Broker, topic: str, begin: str | None) -> Beginning:
    """The positions where a group begins: earliest, latest, or a time. Raises `InvalidInput` for anything else."""

    async def positions(reader: TopicReader) -> Positions:
        return await start_positions(topic, reader, None, begin, default="earliest")

    return await beginning(broker.topics, broker.reader_of, topic, positions)


def queue_of(group: Group) -> QueueGroup:
    """The group as a queue group. Raises `Conflict` for a group of the other mode."""
    if not isinstance(group, QueueGroup):
        raise Conflict(
            "group-mode",
            f"group {group.name!r} is a stream group: its members read segments and commit positions; there is nothing "
            "to claim or ack",
            Remedy("join", topic=group.topic, group=group.name),
        )
    return group


def stream_of(group: Group) -> StreamGroup:
    """The group as a stream group. Raises `Conflict` for a group of the other mode."""
    if not isinstance(group, StreamGroup):
        raise Conflict(
            "group-mode",
            f"group {group.name!r} is a queue group: it has no members and no positions",
            Remedy("claim", topic=group.topic, group=group.name),
        )
    return group
