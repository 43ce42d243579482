"""Ctrl-C and SIGTERM in a command: it always ends with 130 or 143, and never with a stack trace.

Python raises `KeyboardInterrupt` at any line: in an import, in a finalizer, between the steps of closing an event loop.
No code can be safe against that everywhere. So here a signal raises nothing. While a coroutine runs (`run`), the first
signal cancels it, and it ends in order. At all other times, and the second time, the process ends at once, after the
last words of the command if it has any.
"""

import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

INTERRUPTED = 130
_SIGNALLED = 128
_STDERR = 2
_SHOW_CURSOR = b"\x1b[?25h"


class Interrupts:
    """The effect of SIGINT and SIGTERM on this process from `begin` on, until `end`."""

    def __init__(self) -> None:
        self._cancel: Callable[[], object] | None = None
        self._last_words: Callable[[], str] | None = None
        self._came: int | None = None

    def begin(self, signals: Iterable[int]) -> None:
        """Take over these signals."""
        for number in signals:
            signal.signal(number, self._interrupted)

    def end(self, code: int) -> int:
        """End a command with this exit code: nothing is left that a signal could interrupt.

        Returns the exit code of the process, which names the signal if one has ended the command.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) == self._interrupted:
                signal.signal(number, signal.SIG_IGN)
        return code if self._came is None or code != INTERRUPTED else _SIGNALLED + self._came

    @contextmanager
    def last_words(self, words: Callable[[], str]) -> Iterator[None]:
        """Within the block, print one line if a signal ends the command. `words` is called once, at that moment."""
        self._last_words = words
        try:
            yield
        except KeyboardInterrupt:
            self._say_last_words()
            raise
        finally:
            self._last_words = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. Raises `KeyboardInterrupt` if a signal has cancelled it."""
        # Imported here: commands without coroutines start sooner.
        import asyncio

        import uvloop

        async def cancellable() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None, "a coroutine of a loop runs in a task"
            # Through the loop, which may be asleep.
            self._cancel = partial(loop.call_soon_threadsafe, task.cancel)
            try:
                return await work
            finally:
                self._cancel = None

        try:
            return uvloop.run(cancellable())
        except BaseException:
            # However it ended: it was about to go on.
            if self._came is not None:
                raise KeyboardInterrupt from None
            raise

    def _interrupted(self, number: int, _: FrameType | None) -> None:
        cancel, self._cancel = self._cancel, None
        self._came = number
        if cancel is not None:
            cancel()
            return
        try:
            if os.isatty(_STDERR):
                # A progress bar may have hidden it. The line of the bar, or of a question, ends here.
                os.write(_STDERR, _SHOW_CURSOR + b"\n")
            self._say_last_words()
        finally:
            os._exit(_SIGNALLED + number)

    def _say_last_words(self) -> None:
        words, self._last_words = self._last_words, None
        if words is not None:
            # Past Python's buffers, which the interrupted line may have locked.
            os.write(_STDERR, f"mq: {words()}\n".encode())


INTERRUPTS = Interrupts()
