"""A command that runs for a message: its input, and the meaning of its end."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from braidmq import AsyncClient, AsyncDelivery
from braidmq.times import rfc3339
from mq.cli.own_environment import given_environment

PREFIX = "MQ_"
_CHUNK_BYTES = 65_536
_NOT_IN_A_NAME = re.compile(r"[^A-Z0-9]")
_LAST_WORDS_SECONDS = 1.0
_ENDING_SECONDS = 5.0
_LINE_BYTES = 2_000
"""The part of a line of stderr that is kept: more than a reason may have."""


class EndGuard:
    """Ends running commands with this process, even if SIGKILL ends it: their messages go to other workers then.

    It is a process that outlives this one for a moment. If this process is killed between the start of a command and
    the line that names it, the command runs on.
    """

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("end_guard.py"))],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A signal that stops this process, as Ctrl-C does, does not reach it.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin.fileno()
        # A write must not block the work if the guard stands still.
        os.set_blocking(self._input, False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._process:
            pass

    def began(self, process_group: int) -> None:
        """Note that a command runs."""
        self._tell(process_group)

    def ended(self, process_group: int) -> None:
        """Note that a command has ended."""
        self._tell(-process_group)

    def _tell(self, number: int) -> None:
        with suppress(OSError):
            os.write(self._input, b"%d\n" % number)


async def run_command(
    command: Sequence[str], client: AsyncClient, delivery: AsyncDelivery, group: str, guard: EndGuard
) -> str | None:
    """Run a command for a message. Returns None if it exits with 0, else why it has failed.

    It gets the value on stdin and the rest in its environment. It has a process group of its own, so that Ctrl-C does
    not reach it: a user that stops the worker lets it end. If this is cancelled, the command gets SIGTERM, and SIGKILL
    if that does not end it.
    """
    try:
        process = await _start(command, variables(delivery, group))
    except (OSError, ValueError) as error:  # the environment may be too large, or the machine full
        return f"{command[0]}: {error}"
    guard.began(process.pid)
    last_words = _LastLine()
    feeding = asyncio.create_task(_feed(process, client, delivery))
    listening = asyncio.create_task(_pass_on(process, last_words))
    ending = asyncio.create_task(process.wait())
    try:
        await asyncio.wait([feeding, ending], return_when=asyncio.FIRST_COMPLETED)
        if feeding.done() and (failure := feeding.exception()) is not None:
            return f"the value could not be read: {failure}"
        await asyncio.wait([ending])
        # A process that the command has left running may hold its stderr open.
        await asyncio.wait([listening], timeout=_LAST_WORDS_SECONDS)
    finally:
        await _end(process)
        if process.returncode is not None:
            guard.ended(process.pid)
        for task in (feeding, listening, ending):
            task.cancel()
        await asyncio.gather(feeding, listening, ending, return_exceptions=True)
    code = ending.result()
    return None if code == 0 else last_words.text or _ending(code)


async def _start(command: Sequence[str], told: Mapping[str, bytes]) -> asyncio.subprocess.Process:
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**given_environment(), **{name.encode(): value for name, value in told.items()}},
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The command may run by now, and nothing else would end it.
        with suppress(OSError, ValueError):
            await _end(await starting)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the command, and all that it has started, if it has not ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _ENDING_SECONDS)


def variables(delivery: AsyncDelivery, group: str) -> dict[str, bytes]:
    """The variables of a command's environment that describe its message. A value with a NUL byte is left out."""
    told: dict[str, bytes] = {
        "TOPIC": delivery.topic.encode(),
        "GROUP": group.encode(),
        "ID": delivery.id.encode(),
        "DELIVERIES": b"%d" % delivery.deliveries,
        "TIMESTAMP": rfc3339(delivery.timestamp).encode(),
        "HEADERS": _json(delivery.headers),
        **{f"HEADER_{_NOT_IN_A_NAME.sub('_', name.upper())}": value for name, value in delivery.headers.items()},
    }
    if delivery.key is not None:
        told["KEY"] = delivery.key
    return {f"{PREFIX}{name}": value for name, value in told.items() if b"\0" not in value}


def _json(headers: Mapping[str, bytes]) -> bytes:
    return orjson.dumps({name: value.decode("utf-8", "replace") for name, value in headers.items()})


async def _feed(process: asyncio.subprocess.Process, client: AsyncClient, delivery: AsyncDelivery) -> None:
    """Write the value to stdin. A command need not read it."""
    stdin = process.stdin
    assert stdin is not None, "it is a pipe"
    try:
        async for piece in _pieces(client, delivery):
            try:
                stdin.write(piece)
                await stdin.drain()
            except (OSError, RuntimeError):  # it has closed its stdin; uvloop raises either
                return
    finally:
        stdin.close()


async def _pieces(client: AsyncClient, delivery: AsyncDelivery) -> AsyncIterator[bytes]:
    if delivery.message.ref is None:
        yield delivery.value or b""
        return
    async with client.open(delivery.message) as payload:
        async for piece in payload:
            yield piece


async def _pass_on(process: asyncio.subprocess.Process, last_words: "_LastLine") -> None:
    """Pass the command's stderr on to ours, and keep its last line."""
    assert process.stderr is not None, "it is a pipe"
    while piece := await process.stderr.read(_CHUNK_BYTES):
        last_words.add(piece)
        with suppress(OSError, ValueError):  # stderr has no reader
            sys.stderr.buffer.write(piece)
            sys.stderr.buffer.flush()


class _LastLine:
    """The last line of a stream that is not blank."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=2)
        self._rest = b""

    def add(self, piece: bytes) -> None:
        """Add more of the stream."""
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[:_LINE_BYTES]
        self._lines.extend(line[:_LINE_BYTES] for line in lines if line.strip())

    @property
    def text(self) -> str:
        """The line; empty if there is none."""
        line = self._rest if self._rest.strip() else self._lines[-1] if self._lines else b""
        return line.decode("utf-8", "replace").strip()


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
