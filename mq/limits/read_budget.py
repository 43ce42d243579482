"""The bounded memory of answers with messages: all pages of reads, decoded or rendered, until they are sent."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from types import TracebackType

from mq.base.errors import ReadsFull
from mq.limits.turns import Line

WAIT_SECONDS = 5.0
"""How long a read waits for its first room. Most reads give theirs back within milliseconds."""
PAGE_BYTES = 32 * 1024 * 1024
"""The most that one page decodes, unless a single row group has more: files are decoded by row groups."""
LARGE_BYTES = 2 * 1024 * 1024
"""A page above this is large. During rendering, its messages are there several times."""
COPIES = 3
SMALL_SHARE = 4
"""Large pages leave this share of the budget to small ones, which never wait for them."""

_Queue = deque[tuple[int, "asyncio.Future[None]"]]


class ReadBudget:
    """Counts the bytes that leases hold. First come, first served, for small and large pages each.

    A read that is larger than the whole budget goes on as the only large one: a message may be larger than the budget,
    and must stay readable. `on_change` gets the total that all hold. Pages are rendered in `turns`, and readers that
    waited for news go on in them. Belongs to one event loop.
    """

    def __init__(
        self, limit_bytes: int, turns: Line, on_change: Callable[[int], None] = lambda held_bytes: None
    ) -> None:
        self.limit_bytes, self.turns = limit_bytes, turns
        self.held_bytes = 0
        # During rendering, a page takes several times its size.
        self.large_page = asyncio.Semaphore(1)
        self._on_change = on_change
        self._large_bytes = 0
        self._waiting: tuple[_Queue, _Queue] = (deque(), deque())

    def lease(self) -> "ReadLease":
        """Return a lease for one read, which holds nothing yet."""
        return ReadLease(self)

    def _fits(self, before_bytes: int, after_bytes: int) -> bool:
        others_bytes = self.held_bytes - before_bytes
        large_bytes = self._large_bytes - _if_large(before_bytes)
        kept_bytes = self.limit_bytes // SMALL_SHARE
        if not others_bytes or others_bytes + after_bytes <= self.limit_bytes - _if_large(kept_bytes, after_bytes):
            return True
        if after_bytes > LARGE_BYTES:
            return not large_bytes
        return others_bytes - large_bytes + after_bytes <= kept_bytes

    def try_grow(self, before_bytes: int, after_bytes: int) -> bool:
        """Make a lease hold that much instead of its present size, if no other waits and there is room."""
        if self._waiting[after_bytes > LARGE_BYTES] or not self._fits(before_bytes, after_bytes):
            return False
        self.change(before_bytes, after_bytes)
        return True

    async def hold(self, size_bytes: int) -> None:
        """Hold that much once there is room. Raises `ReadsFull` after `WAIT_SECONDS`."""
        if self.try_grow(0, size_bytes):
            return
        queue = self._waiting[size_bytes > LARGE_BYTES]
        turn = asyncio.get_running_loop().create_future()
        entry = (size_bytes, turn)
        queue.append(entry)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.change(size_bytes, 0)  # it was given room in the very moment in which it gave up
            else:
                with contextlib.suppress(ValueError):  # it was passed over, in the very moment in which it gave up
                    queue.remove(entry)
                self._serve()
            if isinstance(error, TimeoutError):
                raise ReadsFull(
                    f"answers that are being put together or sent hold {self.held_bytes} bytes, and at most "
                    f"{self.limit_bytes} may (--read-bytes); ask again later"
                ) from error
            raise

    def change(self, before_bytes: int, after_bytes: int) -> None:
        """Make a lease hold so many bytes instead of its present size, even above the limit."""
        self.held_bytes += after_bytes - before_bytes
        self._large_bytes += _if_large(after_bytes) - _if_large(before_bytes)
        self._on_change(self.held_bytes)
        if after_bytes < before_bytes:
            self._serve()

    def _serve(self) -> None:
        for queue in self._waiting:
            while queue and self._fits(0, queue[0][0]):
                size_bytes, turn = queue.popleft()
                if not turn.done():
                    self.change(0, size_bytes)
                    turn.set_result(None)


def _if_large(size_bytes: int, of_bytes: int | None = None) -> int:
    """Return that size, if it is that of a large page (or if `of_bytes` is); else 0."""
    return size_bytes if (size_bytes if of_bytes is None else of_bytes) > LARGE_BYTES else 0


def _cost_bytes(taken_bytes: int) -> int:
    return taken_bytes if taken_bytes <= LARGE_BYTES else COPIES * taken_bytes


class ReadLease:
    """The part of the budget that one read holds.

    A context manager that closes it on an exception; otherwise the sender of the answer does.
    """

    def __init__(self, budget: ReadBudget) -> None:
        self._budget = budget
        self._first = asyncio.Lock()
        self._closed = False
        self.held_bytes = self.taken_bytes = 0
        self._short_bytes = 0
        self.large_page, self.turns = budget.large_page, budget.turns

    def __enter__(self) -> "ReadLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.close()

    async def take(self, size_bytes: int) -> bool:
        """Reserve so many more bytes to decode; False if the page has to end before them.

        Only a read that holds nothing waits, so none waits for another in a circle. Raises `ReadsFull`.
        """
        async with self._first:
            if self._closed:
                return False
            taken_bytes = self.taken_bytes + size_bytes
            wanted_bytes = _cost_bytes(taken_bytes)
            if wanted_bytes > self.held_bytes:
                if not self.held_bytes:
                    await self._budget.hold(wanted_bytes)
                elif taken_bytes > PAGE_BYTES or not self._budget.try_grow(self.held_bytes, wanted_bytes):
                    self._short_bytes = wanted_bytes
                    return False
                self.held_bytes = wanted_bytes
            self.taken_bytes = taken_bytes
            return self._still_wanted()

    async def enlarge(self) -> bool:
        """Wait for room, after a page that ended before its first message for want of room; then it is read again.

        False if it did not end for want of room. Meanwhile it holds nothing. Raises `ReadsFull`.
        """
        wanted_bytes = self._short_bytes
        if not wanted_bytes:
            return False
        self.release()
        async with self._first:
            await self._budget.hold(wanted_bytes)
            self.held_bytes = wanted_bytes
            return self._still_wanted()

    def _still_wanted(self) -> bool:
        """False if another part of the read has failed while this one waited."""
        if self._closed:
            self.release()
        return not self._closed

    def keep(self, size_bytes: int) -> None:
        """Hold exactly that much from now on: the page as it was rendered, or nothing."""
        self._budget.change(self.held_bytes, size_bytes)
        self.held_bytes = size_bytes
        self.taken_bytes = self._short_bytes = 0

    def release(self) -> None:
        """Hold nothing for now."""
        if self.held_bytes:
            self.keep(0)
        self._short_bytes = 0

    def close(self) -> None:
        """Hold nothing any more: the answer has been sent, or there will be none."""
        self._closed = True
        self.release()

    def __del__(self) -> None:
        # An answer that was never sent, because its client went away, gives its room back as well.
        self.release()
