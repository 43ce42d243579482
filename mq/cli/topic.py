"""`mq topic`: create and configure, list, describe, delete; and, from beside it, history, split, merge."""

from typing import Annotated, Any, Literal

import orjson
import typer

from braidmq import AsyncClient
from braidmq.models import Segment, Topic, TopicSummary
from filer.topic_config import TopicConfig
from mq.cli.connect import with_client
from mq.cli.lineage import lineage
from mq.cli.options import DEFAULT_URL, Json, TopicName, Url
from mq.cli.output import print_json, print_lines, print_table
from mq.cli.segment_loads import COLUMNS as LOAD_COLUMNS
from mq.cli.segment_loads import load_rows
from mq.cli.topic_history import history
from mq.cli.topic_settings import flatten, gather
from mq.cli.topic_shape import merge, slots, split

_COLUMNS = (
    "segment", "slots", "state", "owner", "start offset", "end offset", "follows", "followed by",
)  # fmt: skip

app = typer.Typer(
    help="Create, configure, list, describe and delete topics; split and merge their segments.", no_args_is_help=True
)

_Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting, e.g. retention.seconds=3600 or scaling.enabled=false; the value is JSON, else text.",
    ),
]
_Segments = Annotated[int | None, typer.Option("--segments", help="How many segments to begin with (1).", min=1)]
_KeyType = Annotated[Literal["binary", "string"] | None, typer.Option("--key-type", help="What keys are (binary).")]
_ValueType = Annotated[
    Literal["binary", "string", "json"] | None, typer.Option("--value-type", help="What values are (binary).")
]
_RetentionSeconds = Annotated[
    float | None, typer.Option("--retention-seconds", help="Age at which messages go (never).")
]
_RetentionBytes = Annotated[
    int | None, typer.Option("--retention-bytes", help="Size above which the oldest messages go (none).")
]
_Overflow = Annotated[
    Literal["reject", "block", "drop_oldest"] | None,
    typer.Option("--overflow", help="What happens to publishes while the broker's memory is full (reject)."),
]


@app.command("create")
def create(
    topic: TopicName,
    segments: _Segments = None,
    key_type: _KeyType = None,
    value_type: _ValueType = None,
    retention_seconds: _RetentionSeconds = None,
    retention_bytes: _RetentionBytes = None,
    overflow: _Overflow = None,
    overrides: _Overrides = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Create a topic. One that exists gets the settings that are given; see also `mq topic config`."""
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
    made = with_client(url, lambda client: client.create_topic(topic, **config))
    if as_json:
        print_json(made.model_dump())
    else:
        opened = sum(segment.state == "open" for segment in made.segments)
        print_lines(f"topic {made.topic}: {opened} open {'segment' if opened == 1 else 'segments'}")


@app.command("config")
def configure(topic: TopicName, overrides: _Overrides = None, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Change settings of a topic, or show all of them."""
    changes = gather(overrides or [], {})

    async def work(client: AsyncClient) -> Topic:
        # Looked up first: a PUT would create a topic whose name was misspelt.
        found = await client.topic(topic)
        return await client.create_topic(topic, **changes) if changes else found

    config = with_client(url, work).config
    if as_json:
        print_json(config)
    else:
        print_table(("setting", "value"), ((name, _word(value)) for name, value in flatten(config)))


@app.command("list")
def list_topics(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List the topics."""

    async def work(client: AsyncClient) -> list[TopicSummary]:
        return [each async for each in client.topics()]

    found = with_client(url, work)
    if as_json:
        print_json([each.model_dump(by_alias=True) for each in found])
    else:
        print_table(("topic", "open segments", "version"), ((t.topic, t.open_segments, t.version) for t in found))


@app.command("describe")
def describe(topic: TopicName, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show a topic's segments, how busy they are, how they followed one another, and settings that are no default."""
    found = with_client(url, lambda client: client.topic(topic))
    if as_json:
        print_json(found.model_dump())
        return
    print_lines(f"topic {found.topic}, version {found.version}", *_unusual(found.config))
    print_table(_COLUMNS, (_segment_row(segment) for segment in found.segments))
    if rows := load_rows(found.segments):
        print_lines("")
        print_table(LOAD_COLUMNS, rows)
    for lines in (lineage(found.segments), [_stays_whole(s) for s in found.segments if s.hot_slot is not None]):
        if lines:
            print_lines("", *lines)


app.command("history")(history)
app.command("split")(split)
app.command("merge")(merge)


@app.command("delete")
def delete(
    topic: TopicName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Delete a topic with all its messages."""
    if not yes:
        typer.confirm(f"Delete topic {topic!r} with all its messages?", abort=True, err=True)
    with_client(url, lambda client: client.delete_topic(topic))
    if as_json:
        print_json({"deleted": topic})
    else:
        print_lines(f"topic {topic} is deleted")


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


def _stays_whole(segment: Segment) -> str:
    return f"{segment.segment} stays whole: most of its load is in slot {segment.hot_slot}, so no split would help"


def _unusual(config: dict[str, Any]) -> list[str]:
    usual = dict(flatten(TopicConfig().model_dump(mode="json")))
    changed = [f"{name}={_word(value)}" for name, value in flatten(config) if usual.get(name) != value]
    return [f"settings: {', '.join(changed)}"] if changed else []


def _word(value: object) -> str:
    """A setting's value as `--set` takes it."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
