"""Stopping a publish half-way and going on: the messages stored by then, and the command that publishes the rest."""

import asyncio
import shlex
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from braidmq import BraidMQError, Published
from filer.clock import Clock, comes_within
from mq.cli.failures import CommandFailed, say
from mq.cli.publishing.publish_summary import PublishSummary, messages

_SKIP = "--skip"
_SILENT_SECONDS = 1.0
_LONGEST_SECONDS = 10.0


class Skip:
    """The first messages of the input, over all its files, which an earlier run has published."""

    def __init__(self, count: int) -> None:
        self._left = self._count = count

    def take(self, count: int) -> int:
        """Return how many of the next `count` messages of the input are to be left out."""
        taken = min(self._left, count)
        self._left -= taken
        return taken

    def check_all_taken(self) -> None:
        """At the end of the input, raise `CommandFailed` if it has fewer messages than are to be left out."""
        if self._left:
            raise CommandFailed(
                f"{_SKIP} is {self._count:,}, and the input has only {messages(self._count - self._left)}: "
                "nothing was published"
            )


async def acknowledged(
    publishing: Coroutine[Any, Any, Published], count: int, summary: PublishSummary, clock: Clock
) -> None:
    """Publish `count` messages and add the answer to the summary.

    If the command is interrupted meanwhile, wait for the answer all the same, for a time: it says which messages are
    stored.
    """
    summary.begin(count)
    task = asyncio.create_task(publishing)
    try:
        summary.add(await asyncio.shield(task))
    except asyncio.CancelledError:
        await _wait_a_little(task, count, clock)
        with suppress(BraidMQError, asyncio.CancelledError):
            summary.add(await task)
        raise


async def _wait_a_little(task: "asyncio.Task[Published]", count: int, clock: Clock) -> None:
    """Return when the task has ended, or cancel it when it takes too long."""
    ended = asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    try:
        if not await comes_within(clock, ended, _SILENT_SECONDS):
            say(f"waiting for the answer about {messages(count)}; Ctrl-C again does not wait for it")
            await comes_within(clock, ended, _LONGEST_SECONDS)
    finally:
        task.cancel()


def interrupted(summary: PublishSummary, skipped: int, arguments: Sequence[str] | None) -> str:
    """The last words of an interrupted command: what is stored, and how to go on.

    `arguments` are those of the command line; None if they name no input that could be continued.
    """
    stored = f"{messages(summary.stored)} {'was' if summary.stored == 1 else 'were'} stored"
    text = f"interrupted: {stored if summary.stored else 'nothing was stored'}"
    after = skipped + summary.stored
    if summary.uncertain:
        more = " more" if summary.stored else ""
        text += f" for certain, and {messages(summary.uncertain, more)} may or may not be stored"
    if arguments is None or not after + summary.uncertain:
        return text
    if summary.uncertain:
        text += f" ({_SKIP} {after + summary.uncertain} leaves them out)"
    return f"{text}; go on with the same input: {continued(arguments, after)}"


def continued(arguments: Sequence[str], skip: int) -> str:
    """The command line that leaves out the first `skip` messages."""
    words = list(arguments)
    while _SKIP in words:
        at = words.index(_SKIP)
        del words[at : at + 2]
    words = [word for word in words if not word.startswith(f"{_SKIP}=")]
    return shlex.join(["mq", *words, _SKIP, str(skip)])
