"""SIGTERM and SIGINT end work cleanly."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from braidmq.forks import Birthplace

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Within the block, the first SIGTERM or SIGINT calls `stop`. From then on both do what they did before.

    Python delivers signals to the main thread alone; in others, this does nothing. A signal that is ignored stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.getsignal(each) for each in _SIGNALS}
    birthplace = Birthplace()

    def restore() -> None:
        for each, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(each, signal.SIG_DFL if handler is None else handler)

    def stopping(number: int, _: FrameType | None) -> None:
        restore()
        if birthplace.is_elsewhere:
            # The work is the parent's: a process of a pool, say, that was forked meanwhile ends as it would have.
            os.kill(os.getpid(), number)
        else:
            stop()

    for each, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(each, stopping)
    try:
        yield
    finally:
        restore()
