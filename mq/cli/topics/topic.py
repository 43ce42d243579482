"""`mq topic`: the group, and its commands create, config, list, describe and delete."""

from typing import Annotated, Any, Literal, cast

import orjson
import typer

from braidmq import AsyncClient
from braidmq.models import LostObject, Segment, Topic, TopicSummary
from braidmq.topic_settings import TopicSettings
from mq.cli.connect import with_client
from mq.cli.input.confirmation import Yes, confirm
from mq.cli.input.nested_settings import flatten, gather
from mq.cli.options import DEFAULT_URL, Json, Timeout, TopicName, Url, duration_seconds, size_bytes
from mq.cli.output import print_deleted, print_json, print_lines, print_table, slots
from mq.cli.topics.given_up import GIVEN_UP_COLUMNS, given_up_rows
from mq.cli.topics.lineage import lineage
from mq.cli.topics.segment_traffic import COLUMNS as TRAFFIC_COLUMNS
from mq.cli.topics.segment_traffic import traffic_rows

_COLUMNS = (
    "segment", "slots", "state", "owner", "start offset", "end offset", "follows", "followed by",
)  # fmt: skip
_LOST_COLUMNS = ("lost object", "is", "segment", "from offset", "to offset")

_Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting that mq topic config shows, e.g. retention.seconds=7d, rollup_bytes=64MiB or "
        "scaling.enabled=false. May be repeated.",
    ),
]
_Segments = Annotated[
    int | None, typer.Option("--segments", help="Number of segments at the start (default: 1).", min=1)
]
_KeyType = Annotated[
    Literal["binary", "string"] | None, typer.Option("--key-type", help="Type of keys (default: binary).")
]
_ValueType = Annotated[
    Literal["binary", "string", "json"] | None, typer.Option("--value-type", help="Type of values (default: binary).")
]
_RetentionSeconds = Annotated[
    float | None,
    typer.Option(
        "--retention-seconds",
        parser=duration_seconds(0),
        metavar="DURATION",
        help="Age at which messages are deleted, as in 7d (default: never).",
    ),
]
_RetentionBytes = Annotated[
    int | None,
    typer.Option(
        "--retention-bytes",
        parser=size_bytes(0),
        metavar="SIZE",
        help="Size above which the oldest messages are deleted, as in 10GB (default: none).",
    ),
]
_Overflow = Annotated[
    Literal["reject", "block", "drop_oldest"] | None,
    typer.Option(
        "--overflow",
        help="While the broker's memory is full, publishes are refused (reject, the default) or wait (block); with "
        "drop_oldest they are refused too, and subscribers that fall behind skip messages.",
    ),
]


def create(
    topic: TopicName,
    segments: _Segments = None,
    key_type: _KeyType = None,
    value_type: _ValueType = None,
    retention_seconds: _RetentionSeconds = None,
    retention_bytes: _RetentionBytes = None,
    overflow: _Overflow = None,
    overrides: _Overrides = None,
    new: Annotated[bool, typer.Option("--new", help="Fail if the topic exists.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Create a topic. If it exists, change the given settings; see also `mq topic config`."""
    config = gather(
        overrides or [],
        {
            "segments": segments,
            "key_type": key_type,
            "value_type": value_type,
            "retention.seconds": retention_seconds,
            "retention.bytes": retention_bytes,
            "overflow": overflow,
        },
    )
    settings = cast("TopicSettings", config)  # the broker checks them
    found = with_client(url, timeout, lambda client: client.create_topic(topic, exist_ok=not new, **settings))
    if as_json:
        print_json(found.model_dump())
    else:
        opened = sum(segment.state == "open" for segment in found.segments)
        segments_now = f"{opened} open {'segment' if opened == 1 else 'segments'}"
        print_lines(f"topic {found.topic}: {segments_now}{'' if found.created else '; it existed before'}")
        for name, each in found.differs.items():
            print_lines(
                f"{name} {each.wanted} was ignored: it counts only at creation, and the topic has {each.actual}"
            )


def configure(
    topic: TopicName,
    overrides: _Overrides = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Change settings of a topic, or show all settings."""
    changes = gather(overrides or [], {})
    from filer.topic.topic_config import AT_CREATION

    if AT_CREATION in changes:
        raise typer.BadParameter(
            f"{AT_CREATION} counts only at creation: see mq topic split and merge, and the settings min_segments and "
            "max_segments",
            param_hint="--set",
        )
    settings = cast("TopicSettings", changes)  # the broker checks them

    async def work(client: AsyncClient) -> Topic:
        # Get the topic first: a PUT with a misspelt name would create a topic.
        found = await client.topic(topic)
        return await client.create_topic(topic, **settings) if changes else found

    config = with_client(url, timeout, work).config
    if as_json:
        print_json(config)
    else:
        print_table(("setting", "value"), ((name, _word(value)) for name, value in flatten(config)))


def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="List the brokers' own topics too: their names begin with __.")
    ] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """List the topics."""

    async def work(client: AsyncClient) -> list[TopicSummary]:
        return [each async for each in client.topics(internal=internal)]

    found = with_client(url, timeout, work)
    if as_json:
        print_json([each.model_dump(by_alias=True) for each in found])
    else:
        rows = ((t.topic, t.open_segments, t.version, t.group) for t in found)
        is_any_grouped = any(t.group is not None for t in found)
        columns = ("topic", "open segments", "version", "topic group")[: 4 if is_any_grouped else 3]
        print_table(columns, (row[: len(columns)] for row in rows))


def describe(topic: TopicName, url: Url = DEFAULT_URL, timeout: Timeout = None, as_json: Json = False) -> None:
    """Show the segments of a topic, their traffic and lineage, and the settings that differ from the default."""
    found = with_client(url, timeout, lambda client: client.topic(topic))
    if as_json:
        print_json(found.model_dump())
        return
    group = f" of topic group {found.group}" if found.group not in (None, found.topic) else ""
    print_lines(f"topic {found.topic}{group}, version {found.version}", *_changed_settings(found.config))
    print_table(_COLUMNS, (_segment_row(segment) for segment in found.segments))
    if rows := traffic_rows(found.segments):
        print_lines("")
        print_table(TRAFFIC_COLUMNS, rows)
    for lines in (lineage(found.segments), [_hot_slot_note(s) for s in found.segments if s.hot_slot is not None]):
        if lines:
            print_lines("", *lines)
    if found.damaged:
        print_lines("")
        print_table(_LOST_COLUMNS, map(_lost_row, found.damaged))
    if rows := given_up_rows((segment.segment, segment.given_up) for segment in found.segments):
        print_lines("")
        print_table(GIVEN_UP_COLUMNS, rows)


def delete(
    topic: TopicName,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Delete a topic and all its messages."""
    confirm(f"Delete topic {topic!r} with all its messages?", yes=yes)
    with_client(url, timeout, lambda client: client.delete_topic(topic))
    print_deleted(topic, f"topic {topic}", as_json=as_json)


def _lost_row(lost: LostObject) -> tuple[object, ...]:
    if lost.offset is None:
        return lost.key, lost.what, None, None, None
    last = "unknown" if lost.next_offset is None else str(lost.next_offset - 1)
    return lost.key, lost.what, str(lost.segment), str(lost.offset), last


def _segment_row(segment: Segment) -> tuple[object, ...]:
    return (
        str(segment.segment),
        slots(segment.range),
        segment.state,
        next(iter(segment.brokers), None),
        segment.start_offset,
        segment.end_offset,
        ", ".join(map(str, segment.predecessors)),
        ", ".join(map(str, segment.successors)),
    )


def _hot_slot_note(segment: Segment) -> str:
    return (
        f"{segment.segment} is not split: most of its traffic is in slot {segment.hot_slot}, so a split would not help"
    )


def _changed_settings(config: dict[str, Any]) -> list[str]:
    from filer.topic.topic_config import TopicConfig

    defaults = dict(flatten(TopicConfig().model_dump(mode="json")))
    changed = [f"{name}={_word(value)}" for name, value in flatten(config) if defaults.get(name) != value]
    return [f"settings: {', '.join(changed)}"] if changed else []


def _word(value: object) -> str:
    """The value of a setting as `--set` takes it."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
