"""`mq dead-letters`: show the messages that no consumer of a group could process."""

from typing import Annotated

import orjson
import typer

from braidmq import AsyncClient, GroupMessage
from mq.cli.connect import with_client
from mq.cli.failures import say
from mq.cli.options import DEFAULT_URL, GroupOption, Json, Timeout, TopicName, Url
from mq.cli.output import print_json, print_table

_COLUMNS = ("id", "origin", "deliveries", "died", "key", "value", "reason")
_VALUE_CHARS = 60


def dead_letters(
    topic: TopicName,
    group: GroupOption,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show the oldest N.")] = 100,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show the dead letters of a group that were neither redriven nor discarded: why, and what they were."""

    async def work(client: AsyncClient) -> list[GroupMessage]:
        return [each async for each in client.group(topic, group).messages("dead", limit=limit + 1)]

    found = with_client(url, timeout, work)
    shown = found[:limit]
    if as_json:
        print_json([_document(each) for each in shown])
    else:
        print_table(_COLUMNS, map(_row, shown))
    if len(found) > limit:
        say(f"there are more than these {limit}: see --limit")


def _document(letter: GroupMessage) -> dict[str, object]:
    return {
        "id": letter.id,
        "origin": letter.origin,
        "deliveries": letter.dead_deliveries,
        "reason": letter.reason,
        "timestamp": letter.timestamp,
        "key": letter.key,
        "value": letter.value,
        "headers": letter.headers,
    }


def _row(letter: GroupMessage) -> tuple[object, ...]:
    died = letter.timestamp.strftime("%Y-%m-%d %H:%M:%S")
    text = _text(letter.value)
    value = text if len(text) <= _VALUE_CHARS else f"{text[: _VALUE_CHARS - 1]}…"
    return letter.id, letter.origin, letter.dead_deliveries, died, _text(letter.key), value, letter.reason


def _text(plain: object) -> str:
    if plain is None:
        return ""
    return plain if isinstance(plain, str) else orjson.dumps(plain).decode()
