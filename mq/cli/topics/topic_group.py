"""`mq topic-group`: its commands create, list, describe and delete."""

from typing import Annotated, cast

import typer

from braidmq import AsyncClient
from braidmq.models import Segment, TopicGroup, TopicGroupSummary
from braidmq.topic_settings import TopicSettings
from mq.cli.connect import with_client
from mq.cli.input.confirmation import Yes, confirm
from mq.cli.input.nested_settings import gather
from mq.cli.options import DEFAULT_URL, Json, Timeout, Url
from mq.cli.output import print_deleted, print_json, print_lines, print_table, slots

_COLUMNS = ("segment", "slots", "state", "owner", "start offset", "end offset")

_Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the topic group.", show_default=False)]


def create(
    group: _Group,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC...", help="Topics of the group. They must not exist yet.", show_default=False),
    ] = None,
    splittable: Annotated[
        bool | None,
        typer.Option(
            "--splittable/--not-splittable",
            help="Whether the group may have several segments, so that order is by key alone (default: no).",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting of a topic, for all topics of the group, e.g. value_type=json or retention.seconds=7d. "
            "May be repeated.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Create a topic group of these topics. If it exists, add topics to it and change the given settings."""
    settings = cast("TopicSettings", gather(overrides or [], {}))  # the broker checks them

    async def work(client: AsyncClient) -> TopicGroup:
        return await client.create_topic_group(group, topics or (), splittable=splittable, **settings)

    found = with_client(url, timeout, work)
    if as_json:
        print_json(found.model_dump())
        return
    print_lines(f"topic group {found.group}: {_topics(found)}{'' if found.created else '; it existed before'}")
    for name, each in found.differs.items():
        if name != "topics":  # topics that are not named stay
            print_lines(
                f"{name} {each.wanted} was ignored: it counts only at creation, and the group has {each.actual}"
            )


def list_groups(url: Url = DEFAULT_URL, timeout: Timeout = None, as_json: Json = False) -> None:
    """List the topic groups."""

    async def work(client: AsyncClient) -> list[TopicGroupSummary]:
        return [each async for each in client.topic_groups()]

    found = with_client(url, timeout, work)
    if as_json:
        print_json([each.model_dump(by_alias=True) for each in found])
    else:
        rows = ((each.group, len(each.topics), each.open_segments, each.version) for each in found)
        print_table(("topic group", "topics", "open segments", "version"), rows)


def describe(group: _Group, url: Url = DEFAULT_URL, timeout: Timeout = None, as_json: Json = False) -> None:
    """Show the topics of a group and the segments that they share."""
    found = with_client(url, timeout, lambda client: client.topic_group(group))
    if as_json:
        print_json(found.model_dump())
        return
    order = "order by key" if found.splittable else "one order"
    print_lines(f"topic group {found.group}, version {found.version}, {order}: {_topics(found)}")
    print_lines(*(f"  {topic}" for topic in found.topics), *(f"  {topic} (not joined)" for topic in found.pending))
    print_table(_COLUMNS, (_row(segment) for segment in found.segments))


def delete(
    group: _Group,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Delete a topic group with all its topics and their messages."""
    confirm(f"Delete topic group {group!r} with all its topics and their messages?", yes=yes)
    with_client(url, timeout, lambda client: client.delete_topic_group(group))
    print_deleted(group, f"topic group {group}", as_json=as_json)


def _topics(found: TopicGroup) -> str:
    count, opened = len(found.topics), sum(segment.state == "open" for segment in found.segments)
    pending = f", {len(found.pending)} not joined" if found.pending else ""
    segments = f"{opened} open {'segment' if opened == 1 else 'segments'}"
    return f"{count} {'topic' if count == 1 else 'topics'}{pending}, {segments}"


def _row(segment: Segment) -> tuple[object, ...]:
    owner = next(iter(segment.brokers), None)
    return (
        str(segment.segment),
        slots(segment.range),
        segment.state,
        owner,
        segment.start_offset,
        segment.end_offset,
    )
