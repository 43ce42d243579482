"""A thread for calls of which there is one at a time.

An executor has futures of another kind, with locks of their own, and reports to the event loop by callbacks. For a
small file that takes as long as the write itself.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class LoneThread(Generic[R]):
    """Makes calls one after the other, for one event loop. The thread begins with the first of them.

    `is_busy` from the beginning of a call until the loop learns that it ended, also if no caller waits any more.
    """

    def __init__(self, name: str) -> None:
        self.is_busy = False
        self._name = name
        self._calls: SimpleQueue[tuple[asyncio.Future[R], Callable[..., R], tuple[Any, ...]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[..., R], *args: Any) -> asyncio.Future[R]:
        """Queue the call; the running loop learns its outcome. The call goes on if the future is cancelled."""
        if self._thread is None:
            # A daemon: a process that ends in the middle of a call leaves at most a temporary file.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self.is_busy = True
        made = asyncio.get_running_loop().create_future()
        self._calls.put((made, call, args))
        return made

    def close(self) -> None:
        """Wait until all calls are made, then end the thread. Blocks."""
        self._calls.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (next_call := self._calls.get()) is not None:
            made, call, args = next_call
            result: R | None = None
            error: BaseException | None = None
            try:
                result = call(*args)
            except BaseException as raised:
                error = raised
            # The loop is closed if the process has ended without waiting: then no caller needs the outcome.
            with contextlib.suppress(RuntimeError):
                made.get_loop().call_soon_threadsafe(self._tell, made, result, error)
            # While this waits for the next call, it must not hold the objects of the last one.
            del next_call, made, call, args, result, error

    def _tell(self, made: asyncio.Future[R], result: Any, error: BaseException | None) -> None:
        self.is_busy = False
        if made.done():
            return
        if error is None:
            made.set_result(result)
        else:
            made.set_exception(error)
