"""An event loop whose time passes only while nobody has anything to do, and a clock that tells its time.

A run of whole brokers takes as long as its computing. Time-outs of asyncio keep to that time as well. What brokers hand
to threads is done at once, in its turn: so the same choices give the same run.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, cast

from ulid import ULID

R = TypeVar("R")
A = TypeVarTuple("A")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at 0 seconds."""

    def __init__(self) -> None:
        self._passed_seconds = 0.0
        super().__init__(cast(selectors.BaseSelector, _NeverWaits(self._pass)))

    def _pass(self, seconds: float) -> None:
        self._passed_seconds += seconds

    def time(self) -> float:
        """Seconds since it began."""
        return self._passed_seconds

    def run_in_executor(self, executor: Executor | None, func: Callable[[*A], R], *args: *A) -> "asyncio.Future[R]":
        """Call it at once."""
        future: asyncio.Future[R] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class _NeverWaits(selectors.DefaultSelector):
    """Instead of waiting until a timer is due it has the time pass."""

    def __init__(self, on_wait: Callable[[float], None]) -> None:
        super().__init__()
        self._on_wait = on_wait

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for somebody else, for ever"
        if not (ready := super().select(0)):
            self._on_wait(max(timeout, 0.0))
        return ready


class LoopClock:
    """The `Clock` of the running loop. What it draws follows from the seed alone."""

    def __init__(self, *, start_us: int = 1_700_000_000_000_000, seed: int = 0) -> None:
        self._start_us, self._draws = start_us, seed << 32

    def now_us(self) -> int:
        """The loop's time behind the start."""
        return self._start_us + int(self.monotonic_seconds() * 1e6)

    def monotonic_seconds(self) -> float:
        """The loop's time."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """As `asyncio.sleep`."""
        await asyncio.sleep(seconds)

    def entropy(self, size_bytes: int) -> bytes:
        """Bytes that differ at each call, as far as that many bytes can."""
        self._draws += 1
        return (self._draws % (1 << 8 * size_bytes)).to_bytes(size_bytes, "big")

    def ulid(self) -> str:
        """A ULID of the loop's time."""
        return str(ULID.from_bytes((self.now_us() // 1000).to_bytes(6, "big") + self.entropy(10)))


def run_in_virtual_time(main: Coroutine[Any, Any, R]) -> R:
    """Run it to its end, and cut off whatever goes on then."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
