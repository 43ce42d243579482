"""Names for the completion of shells, as a broker knows them. It never takes long, and prints no errors."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable

import typer

from braidmq import AsyncClient
from braidmq.defaults import DEFAULT_URL
from filer.errors import BraidError
from filer.keys import is_internal
from mq.cli.context_file import contexts_path, read_contexts
from mq.cli.context_in_force import IN_FORCE

_LONGEST_SECONDS = 1.0
_CONNECT_SECONDS = 0.5
# No shell shows more in a useful way.
_MOST_NAMES = 500

Names = Callable[[AsyncClient, str], AsyncIterator[str]]


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """The names of topics with that beginning; none if no broker answers within a second."""
    return _completed(context, incomplete, _topics)


def complete_broker(context: typer.Context, incomplete: str) -> list[str]:
    """The names of brokers with that beginning; none if no broker answers within a second."""
    return _completed(context, incomplete, _brokers)


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """The names of a topic's groups with that beginning; none without a topic, or if no broker answers in time."""
    # Behind an option that lacks its value, arguments have not been parsed: the first is the topic.
    topic = context.params.get("topic") or next(iter(context.args), "")

    async def groups(client: AsyncClient, _: str) -> AsyncIterator[str]:
        if topic:
            async for each in client.groups(topic):
                yield each.group

    return _completed(context, incomplete, groups)


def complete_context(context: typer.Context, incomplete: str) -> list[str]:
    """The names of contexts with that beginning."""
    try:
        names = read_contexts(contexts_path()).by_name
    except (BraidError, OSError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))[:_MOST_NAMES]


def _completed(context: typer.Context, incomplete: str, names: Names) -> list[str]:
    # The shell completes a line that may lack anything, so the option may not have been parsed.
    try:
        before = context.find_root().params
        IN_FORCE.apply(context.params.get("context_name") or before.get("context_name"))
        url = context.params.get("url") or before.get("url") or os.environ.get("BRAIDMQ_URL") or DEFAULT_URL
        IN_FORCE.leave_unless_for(str(url))
        return asyncio.run(_names(str(url), incomplete, names))
    except (BraidError, TimeoutError, OSError):
        return []


async def _names(url: str, incomplete: str, names: Names) -> list[str]:
    found: list[str] = []
    async with (
        asyncio.timeout(_LONGEST_SECONDS),
        AsyncClient(url, timeout_seconds=_LONGEST_SECONDS, connect_timeout_seconds=_CONNECT_SECONDS) as client,
    ):
        async for name in names(client, incomplete):
            # They come in order: behind the prefix there are no more.
            if len(found) >= _MOST_NAMES or (name > incomplete and not name.startswith(incomplete)):
                break
            if name.startswith(incomplete):
                found.append(name)
    return found


async def _topics(client: AsyncClient, incomplete: str) -> AsyncIterator[str]:
    # The brokers' own topics are listed only for a user that has begun to type such a name.
    async for topic in client.topics(internal=is_internal(incomplete)):
        yield topic.topic


async def _brokers(client: AsyncClient, incomplete: str) -> AsyncIterator[str]:
    for name in sorted({each.broker.rpartition(".")[0] for each in (await client.cluster()).brokers}):
        yield name
