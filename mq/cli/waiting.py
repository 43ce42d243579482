"""Report on stderr that no broker answers, while a command waits for one."""

import sys
from typing import TextIO

from braidmq import AsyncClient, ConnectionBroken, NoConnection, OutcomeUnknown, Waiting
from braidmq.remedies import in_commands
from braidmq.transport.addresses import shown
from filer.clock import Clock

POLL_SECONDS = 0.5
_SILENT_SECONDS = 2.0
# An answer that is only slow is no news yet.
_SLOW_ANSWER_SECONDS = 5.0
_BETWEEN_LINES_SECONDS = 5.0
# A user that waits that long does not look any more.
_LONG_SECONDS = 60.0
_CLEAR_LINE = "\r\x1b[K"


async def tell_waiting(client: AsyncClient, clock: Clock) -> None:
    """Report how long the client has waited for a broker, whenever it waits. This ends only when it is cancelled."""
    notice = WaitingNotice()
    try:
        while True:
            await clock.sleep(POLL_SECONDS)
            notice.show(client.waiting)
    finally:
        notice.show(None)


class WaitingNotice:
    """One line that is written anew on a terminal; elsewhere lines some seconds apart."""

    def __init__(self) -> None:
        self._terminal = sys.stderr if sys.stderr.isatty() else None
        self._told_seconds = 0.0
        self._next_line_seconds = 0.0
        self._is_drawn = False

    def show(self, waiting: Waiting | None) -> None:
        """Show what the client waits for, if it is time to. Remove the line if it waits no more."""
        if waiting is None or waiting.seconds < max(self._told_seconds, _first_seconds(waiting)):
            self._told_seconds = self._next_line_seconds = 0.0
            self._clear()
            return
        self._told_seconds = waiting.seconds
        # While a progress bar is drawn, `sys.stderr` is another stream, which moves whole lines above the bar.
        if self._terminal is not None and sys.stderr is self._terminal:
            self._is_drawn = True
            _write(self._terminal, f"{_CLEAR_LINE}mq: {_text(waiting)}")
        elif waiting.seconds >= self._next_line_seconds:
            pause_seconds = _BETWEEN_LINES_SECONDS if waiting.seconds < _LONG_SECONDS else _LONG_SECONDS
            self._next_line_seconds = waiting.seconds + pause_seconds
            _write(sys.stderr, f"mq: {_text(waiting)}\n")

    def _clear(self) -> None:
        if self._is_drawn and self._terminal is not None:
            self._is_drawn = False
            _write(self._terminal, _CLEAR_LINE)


def _first_seconds(waiting: Waiting) -> float:
    return _SLOW_ANSWER_SECONDS if waiting.failure is None else _SILENT_SECONDS


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


def _text(waiting: Waiting) -> str:
    so_far = f"{waiting.seconds:.0f} s so far"
    failure = waiting.failure
    if failure is None:
        return f"waiting for an answer from {shown(waiting.address)}, {so_far}"
    if isinstance(failure, NoConnection | ConnectionBroken | OutcomeUnknown) and failure.problem is None:
        return f"no answer from {shown(waiting.address)}: retrying, {so_far}"
    return f"{' '.join(in_commands(failure).split())}: retrying, {so_far}"
