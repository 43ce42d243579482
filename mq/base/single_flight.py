"""Does work once for all concurrent callers."""

import asyncio
import math
from collections.abc import Awaitable, Callable

from filer.clock import Clock


class SingleFlight:
    """Runs `work` for its callers. All callers that come while a run is under way share the next one.

    So each caller gets a run that begins after its call. The next run begins at least `rest_seconds` after the last
    one ended. A caller that is cancelled does not cancel the run for the others.
    """

    def __init__(
        self, work: Callable[[], Awaitable[None]], clock: Clock, *, name: str, rest_seconds: float = 0.0
    ) -> None:
        self._work, self._clock, self._name, self._rest_seconds = work, clock, name, rest_seconds
        self._ended_seconds = -math.inf
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        """Wait for a run of the work that begins after now. Raises what the work raises."""
        await asyncio.shield(self.ask())

    def ask(self) -> asyncio.Task[None]:
        """As `__call__`, as a task to wait for. Do not cancel it: other callers share it."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._under_way), name=self._name)
            self._next.add_done_callback(_retrieve)
        return self._next

    async def close(self) -> None:
        """Cancel the run under way, and the next."""
        tasks = [task for task in (self._under_way, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        del before
        left_seconds = self._ended_seconds + self._rest_seconds - self._clock.monotonic_seconds()
        if left_seconds > 0:
            await self._clock.sleep(left_seconds)
        self._under_way, self._next = self._next, None
        try:
            await self._work()
        finally:
            self._ended_seconds = self._clock.monotonic_seconds()
            # A failed run would hold what its callers hold until the next one, see `end_tasks`.
            self._under_way = None


def _retrieve(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()  # the callers have received it
