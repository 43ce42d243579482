"""`mq topic history`: every segment that a topic ever had, as a table or a picture."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from braidmq import AsyncClient
from braidmq.models import SegmentLife
from filer.clock import SystemClock
from mq.cli.connect import with_client
from mq.cli.failures import CommandFailed
from mq.cli.options import DEFAULT_URL, Json, Timeout, TopicName, Url
from mq.cli.output import print_json, print_lines, print_table, size, slots
from mq.cli.topics.given_up import GIVEN_UP_COLUMNS, given_up_rows

_FORMATS = (".png", ".svg")
_COLUMNS = (
    "segment", "slots", "reason", "opened", "sealed", "follows", "followed by", "messages", "messages/s", "size",
)  # fmt: skip


def history(
    topic: TopicName,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw key range over time, coloured by messages per second, into this .png or .svg.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show every segment a topic ever had: why and when it was opened and sealed, and how much it held."""
    if plot is not None and plot.suffix.lower() not in _FORMATS:
        raise typer.BadParameter(f"{plot.name} does not end in .png or .svg", param_hint="--plot")

    async def work(client: AsyncClient) -> list[SegmentLife]:
        return [each async for each in client.history(topic)]

    lives = with_client(url, timeout, work)
    if plot is not None:
        _draw(topic, lives, plot)
    if as_json:
        print_json([life.model_dump() for life in lives])
    elif plot is not None:
        print_lines(f"drew {len(lives)} {'segment' if len(lives) == 1 else 'segments'} into {plot}")
    else:
        print_table(_COLUMNS, map(_row, lives))
        if rows := given_up_rows((life.segment, life.given_up) for life in lives):
            print_lines("")
            print_table(GIVEN_UP_COLUMNS, rows)


def _draw(topic: str, lives: list[SegmentLife], path: Path) -> None:
    try:
        from mq.cli.topics.braid_plot import draw_braid
    except ImportError as error:
        raise CommandFailed(f"--plot needs matplotlib ({error}): pip install 'braidmq[plot]'") from error
    draw_braid(topic, lives, now_us=SystemClock().now_us()).savefig(path)


def _row(life: SegmentLife) -> tuple[object, ...]:
    return (
        str(life.segment),
        slots(life.range),
        life.reason,
        _second(life.opened),
        life.state if life.sealed is None else _second(life.sealed),
        ", ".join(map(str, life.predecessors)),
        ", ".join(map(str, life.successors)),
        life.messages,
        life.messages_per_second,
        None if life.bytes is None else size(life.bytes),
    )


def _second(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
