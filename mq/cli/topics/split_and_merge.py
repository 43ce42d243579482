"""`mq topic split` and `mq topic merge`: change the segments of a topic by hand."""

from typing import Annotated

import typer

from braidmq.models import Segment
from mq.cli.connect import with_client
from mq.cli.options import DEFAULT_URL, Json, Timeout, TopicName, Url
from mq.cli.output import print_json, print_table, slots

_SegmentId = Annotated[int, typer.Argument(metavar="SEGMENT", help="An open segment.", show_default=False, min=0)]
_Neighbour = Annotated[
    int, typer.Argument(metavar="SEGMENT", help="An open segment next to it in key order.", show_default=False, min=0)
]


def split(
    topic: TopicName,
    segment: _SegmentId,
    at: Annotated[
        list[int] | None,
        typer.Option(
            "--at",
            metavar="SLOT",
            help="Cut before this slot: keys fall into the slots 0 to 65535. May be repeated, in ascending order.",
        ),
    ] = None,
    parts: Annotated[
        int | None,
        typer.Option("--parts", metavar="N", help="Number of segments to make, of equal traffic (default: 2).", min=2),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Split an open segment of a topic. Publishers and readers go on."""
    if at and parts is not None:
        raise typer.BadParameter("give either --at or --parts, not both", param_hint="--parts")
    opened = with_client(url, timeout, lambda client: client.split_segment(topic, segment, at=at or None, parts=parts))
    _show(opened, as_json=as_json)


def merge(
    topic: TopicName,
    segment: _SegmentId,
    other: _Neighbour,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Merge two neighbouring open segments of a topic. Publishers and readers go on."""
    opened = with_client(url, timeout, lambda client: client.merge_segments(topic, segment, other))
    _show((opened,), as_json=as_json)


def _show(opened: tuple[Segment, ...], *, as_json: bool) -> None:
    if as_json:
        fields = {"segment", "range", "state", "predecessors", "successors", "brokers"}
        print_json({"segments": [segment.model_dump(include=fields) for segment in opened]})
        return
    rows = ((str(s.segment), slots(s.range), s.state, next(iter(s.brokers), None)) for s in opened)
    print_table(("segment", "slots", "state", "owner"), rows)
