"""The bounded memory of answers with messages: what all reads together hold, decoded or rendered, until it is sent."""

import asyncio
from collections import deque
from types import TracebackType

from mq.base.errors import ReadsFull

WAIT_SECONDS = 5.0
"""How long a read waits for its first room. Most reads give theirs back within milliseconds."""
PAGE_BYTES = 32 * 1024 * 1024
"""The most that one page decodes, unless a single row group has more: files are decoded by row groups."""


class ReadBudget:
    """Counts the bytes that leases hold. First come, first served. Belongs to one event loop.

    A read for which even the whole budget is too small goes on alone: a message may be larger than the budget, and must
    stay readable.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        # While it is rendered, a page takes several times its size.
        self.large_page = asyncio.Semaphore(1)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def lease(self) -> "ReadLease":
        """What one read will hold; nothing yet."""
        return ReadLease(self)

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self.limit_bytes

    def try_hold(self, size_bytes: int) -> bool:
        """Hold that much at once, if nobody waits and there is room."""
        if self._waiting or not self._fits(size_bytes):
            return False
        self.held_bytes += size_bytes
        return True

    async def hold(self, size_bytes: int) -> None:
        """Hold that much once there is room. Raises `ReadsFull` after `WAIT_SECONDS`."""
        if self.try_hold(size_bytes):
            return
        turn = asyncio.get_running_loop().create_future()
        entry = (size_bytes, turn)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.change(-size_bytes)  # it was given room in the very moment in which it gave up
            else:
                self._waiting.remove(entry)
                self._serve()
            if isinstance(error, TimeoutError):
                raise ReadsFull(
                    f"answers that are being put together or sent hold {self.held_bytes} bytes, and at most "
                    f"{self.limit_bytes} may (--read-bytes); ask again later"
                ) from error
            raise

    def change(self, by_bytes: int) -> None:
        """Hold so many bytes more, even above the limit, or fewer."""
        self.held_bytes += by_bytes
        if by_bytes < 0:
            self._serve()

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            if not turn.done():
                self.held_bytes += size_bytes
                turn.set_result(None)


class ReadLease:
    """What one read holds of the budget.

    A context manager that closes it on an exception; otherwise whoever sends the answer does.
    """

    def __init__(self, budget: ReadBudget) -> None:
        self._budget = budget
        self._first = asyncio.Lock()
        self._closed = False
        self.held_bytes = 0
        self.large_page = budget.large_page

    def __enter__(self) -> "ReadLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.close()

    async def take(self, size_bytes: int) -> bool:
        """Hold so many bytes more; False if the page has to end before them.

        Only a read that holds nothing waits, so none waits for another in a circle. Raises `ReadsFull`.
        """
        async with self._first:
            if self._closed:
                return False
            if not self.held_bytes:
                await self._budget.hold(size_bytes)
            elif self.held_bytes + size_bytes > PAGE_BYTES or not self._budget.try_hold(size_bytes):
                return False
            self.held_bytes += size_bytes
            if self._closed:
                # Another part of the read has failed while this one waited.
                self.release()
                return False
            return True

    def keep(self, size_bytes: int) -> None:
        """Hold exactly that much from now on: the page as it was rendered, or nothing."""
        self._budget.change(size_bytes - self.held_bytes)
        self.held_bytes = size_bytes

    def release(self) -> None:
        """Hold nothing for now."""
        if self.held_bytes:
            self.keep(0)

    def close(self) -> None:
        """Hold nothing any more: the answer has been sent, or there will be none."""
        self._closed = True
        self.release()

    def __del__(self) -> None:
        # An answer that was never sent, because its client went away, gives its room back as well.
        self.release()
