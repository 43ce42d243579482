"""`mq group`: list, describe, create, reset and delete the consumer groups of a topic, redrive their dead letters."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal, cast

import orjson
import typer

from braidmq import AsyncClient, GroupDescription, GroupNotFound
from braidmq.group_settings import GroupSettings
from braidmq.models import GroupMember
from filer.clock import SystemClock
from mq.cli.connect import with_client
from mq.cli.input.confirmation import Yes, confirm
from mq.cli.input.moments import start_of
from mq.cli.input.nested_settings import flatten, gather
from mq.cli.options import DEFAULT_URL, GroupName, Json, Timeout, TopicName, Url, duration_seconds
from mq.cli.output import print_deleted, print_json, print_lines, print_table, shown

_COLUMNS = ("group", "mode", "lag", "lag seconds", "delayed", "in flight", "waiting consumers", "dead")
_MEMBER = ("member", "epoch", "segments", "lag", "session ends in")
_CONSUMER = ("consumer", "in flight", "claims that wait")
_SEGMENT = ("segment", "position", "lag", "member")
_COUNTS = (*_COLUMNS[2:], "dead in all", "expired", "skipped")
_AT_ONCE = 20
_OF_CREATE = {"created", "differs"}

_Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting that mq group describe shows, e.g. backoff_seconds=[1,60] or dead_letter=null. May be "
        "repeated.",
    ),
]
_LeaseSeconds = Annotated[
    float | None,
    typer.Option(
        "--lease-seconds",
        parser=duration_seconds(1),
        metavar="DURATION",
        help="After this time without an answer from a consumer its messages come again (default: 30s).",
    ),
]
_MaxDeliveries = Annotated[
    int | None,
    typer.Option("--max-deliveries", min=1, help="After so many deliveries a message is a dead letter (default: 5)."),
]
_Order = Annotated[
    Literal["none", "key"] | None,
    typer.Option(
        "--order", help="With key, messages of a key come one after the other. Counts only at creation (default: none)."
    ),
]


def list_groups(topic: TopicName, url: Url = DEFAULT_URL, timeout: Timeout = None, as_json: Json = False) -> None:
    """List the consumer groups of a topic, and how far each is behind."""
    failed: list[Exception] = []

    async def work(client: AsyncClient) -> list[GroupDescription]:
        names = [each.group async for each in client.groups(topic)]
        return [each async for each in _described(client, topic, names, failed)]

    found = with_client(url, timeout, work)
    if as_json:
        print_json([each.model_dump(exclude=_OF_CREATE) for each in found])
    else:
        most = len(_COLUMNS) - 2
        print_table(_COLUMNS, ((each.group, each.settings.get("mode"), *_counts(each)[:most]) for each in found))
    if failed:
        # The others are shown all the same.
        raise failed[0]


async def _described(
    client: AsyncClient, topic: str, names: Sequence[str], failed: list[Exception]
) -> AsyncIterator[GroupDescription]:
    """Describe the groups, a few at a time, without those that are deleted meanwhile. `failed` gets the errors."""
    for start in range(0, len(names), _AT_ONCE):
        asked = (client.group(topic, name).describe() for name in names[start : start + _AT_ONCE])
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, GroupDescription):
                yield answer
            elif not isinstance(answer, Exception):
                raise answer
            elif not isinstance(answer, GroupNotFound):
                failed.append(answer)


def describe(
    topic: TopicName, group: GroupName, url: Url = DEFAULT_URL, timeout: Timeout = None, as_json: Json = False
) -> None:
    """Show how far a group is behind, what has become of messages, and its settings."""
    _print(with_client(url, timeout, lambda client: client.group(topic, group).describe()), as_json=as_json)


def create(
    topic: TopicName,
    group: GroupName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Where a new group begins: earliest (the default), latest, an RFC 3339 time, or how long ago: 5m, 1d.",
        ),
    ] = None,
    lease_seconds: _LeaseSeconds = None,
    max_deliveries: _MaxDeliveries = None,
    order: _Order = None,
    overrides: _Overrides = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Create a consumer group. If it exists, change the given settings."""
    begin = None if start is None else start_of(start, SystemClock().now_us())
    flags = {"lease_seconds": lease_seconds, "max_deliveries": max_deliveries, "order": order}
    settings = cast("GroupSettings", gather(overrides or [], flags))  # the broker checks them
    found = with_client(url, timeout, lambda client: client.group(topic, group).create(from_=begin, **settings))
    if as_json:
        print_json(found.model_dump())
    else:
        stays = "; --from was ignored: it stays where it is" if start is not None else ""
        print_lines(f"group {found.group} of topic {topic}{'' if found.created else f': it existed before{stays}'}")


def reset(
    topic: TopicName,
    group: GroupName,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="POSITION", help="earliest, latest, an RFC 3339 time, or how long ago: 5m, 2h, 1d."
        ),
    ] = None,
    marker: Annotated[
        str | None,
        typer.Option("--marker", metavar="MARKER", help="Or a marker, as the HTTP API and clients give."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also while consumers have messages: what they have is handed out again."),
    ] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Have a group begin anew, further back or further on. What was claimed before cannot be acked any more."""
    if (to is None) == (marker is None):
        raise typer.BadParameter("give one of --to and --marker")
    begin = None if to is None else start_of(to, SystemClock().now_us(), option="--to")
    found = with_client(
        url, timeout, lambda client: client.group(topic, group).reset(begin, marker=marker, force=force)
    )
    if as_json:
        print_json(found.model_dump(exclude=_OF_CREATE))
    else:
        print_lines(
            f"group {found.group} of topic {topic} begins anew: {found.lag.messages:,} messages are ahead of it"
        )


def redrive(
    topic: TopicName,
    group: GroupName,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only this one, as mq dead-letters shows it. May be repeated."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Only the oldest so many.")] = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Publish them nowhere, and show them no more. They stay in their topic.")
    ] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Publish the dead letters of a group to their topic again, once each."""
    if ids and limit is not None:
        raise typer.BadParameter("give only one of --id and --limit")
    count = with_client(
        url, timeout, lambda client: client.group(topic, group).redrive(ids or None, limit=limit, discard=discard)
    )
    if as_json:
        print_json({"discarded" if discard else "redriven": count})
    else:
        letters = f"{count:,} dead letter{'' if count == 1 else 's'}"
        print_lines(f"discarded {letters}" if discard else f"published {letters} to {topic} again")


def delete(
    topic: TopicName,
    group: GroupName,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Delete a consumer group, with its progress. Messages stay in their topics."""
    confirm(f"Delete group {group!r} of topic {topic!r}, with its progress?", yes=yes)
    with_client(url, timeout, lambda client: client.group(topic, group).delete())
    print_deleted(group, f"group {group} of topic {topic}", as_json=as_json)


def _print(found: GroupDescription, *, as_json: bool) -> None:
    if as_json:
        print_json(found.model_dump(exclude=_OF_CREATE))
        return
    print_lines(f"group {found.group} of topic {found.topic}, coordinated by {found.coordinator}")
    print_table(_COUNTS, [_counts(found)])
    if found.settings.get("mode") == "stream":
        print_lines("")
        print_table(_MEMBER, [_member(found, each) for each in found.members])
        print_lines("")
        print_table(_SEGMENT, [(str(each.segment), each.position, each.lag, each.member_id) for each in found.segments])
    elif found.consumers:
        print_lines("")
        print_table(
            _CONSUMER, [(each.consumer or "(no name)", each.in_flight, each.waiting) for each in found.consumers]
        )
        if found.more_consumers:
            print_lines(f"and {found.more_consumers:,} more")
    if (delayed := found.dead_letters_delayed) is not None:
        print_lines("", f"{delayed.messages:,} dead letters cannot be stored: {shown(delayed.reason)}")
    print_lines("")
    print_table(("setting", "value"), ((name, _word(value)) for name, value in flatten(found.settings)))


def _counts(found: GroupDescription) -> tuple[Any, ...]:
    lag = found.lag
    messages = f"<= {lag.messages:,}" if lag.at_most else lag.messages
    seconds = "?" if lag.seconds is None else lag.seconds
    consumed = (messages, seconds, _told(found, found.delayed), found.in_flight, found.waiting_consumers)
    return *consumed, found.dead, _told(found, found.dead_total), found.expired, found.skipped


def _told(found: GroupDescription, count: int | None) -> int | str:
    """A count of a queue group; "?" if an earlier version of broker does not report it. Stream groups have none."""
    if count is not None:
        return count
    return 0 if found.settings.get("mode") == "stream" else "?"


def _member(found: GroupDescription, member: GroupMember) -> tuple[Any, ...]:
    """A member, its segments, and how long it stays a member if no heartbeat comes from now on."""
    behind = sum(each.lag for each in found.segments if each.member_id == member.member_id)
    held = " ".join(map(str, member.segments))
    return member.member_id, member.member_epoch, held, behind, f"{member.session_ends_in_seconds:.0f} s"


def _word(value: object) -> str:
    """The value of a setting as `--set` takes it."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
