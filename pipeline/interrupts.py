"""Ctrl-C in a job: the process ends at once with 130, and a line says how to go on.

A handler does it. Python's own raises `KeyboardInterrupt` at whichever line runs, in an import or a finalizer too,
where it shows a stack trace or is lost. Spark's processes on this machine end with the one that started them. The job
may be anywhere: one that goes on bears being killed at any line.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
_STDERR = 2


class Interrupts:
    """How this process handles SIGINT from `begin` on, until `end`."""

    def __init__(self) -> None:
        self._last_words: Callable[[], str] | None = None

    def begin(self) -> None:
        """Take over the signal."""
        signal.signal(signal.SIGINT, self._interrupted)

    def end(self) -> None:
        """End: the job is done, and nothing is left to interrupt."""
        if signal.getsignal(signal.SIGINT) == self._interrupted:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    @contextmanager
    def last_words(self, words: Callable[[], str]) -> Iterator[None]:
        """Within the block, print one line if the process is interrupted."""
        self._last_words = words
        try:
            yield
        finally:
            self._last_words = None

    def _interrupted(self, number: int, _: FrameType | None) -> None:
        try:
            if self._last_words is not None:
                if os.isatty(_STDERR):
                    # The line of a question ends here.
                    os.write(_STDERR, b"\n")
                # Past Python's buffers, which the interrupted line may have locked.
                os.write(_STDERR, f"mq: {self._last_words()}\n".encode())
        finally:
            os._exit(INTERRUPTED)


INTERRUPTS = Interrupts()
