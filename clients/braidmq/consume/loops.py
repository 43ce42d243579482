"""Loops over workers and consumers: the end of a loop closes them, a cancelled wait does not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Loop(AsyncIterator[T]):
    """Yields the results of `take` until that returns None.

    It is over at that end, after an error of `take`, and once no code holds it any more, as after a `break`. `begin` is
    called at its first step. When it is over, `end` is called, or `let_go` if nothing can be awaited. A step that is
    cancelled, by a time-out say, ends nothing.
    """

    def __init__(
        self,
        take: Callable[[], Awaitable[T | None]],
        *,
        begin: Callable[[], object] = lambda: None,
        end: Callable[[], Awaitable[object]],
        let_go: Callable[[], object],
    ) -> None:
        self._take, self._begin, self._end, self._let_go = take, begin, end, let_go
        self._is_begun = self._is_over = False

    async def __anext__(self) -> T:
        if self._is_over:
            raise StopAsyncIteration
        if not self._is_begun:
            self._is_begun = True
            self._begin()
        try:
            taken = await self._take()
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self.aclose()
            raise
        if taken is None:
            await self.aclose()
            raise StopAsyncIteration
        return taken

    async def aclose(self) -> None:
        """End the loop."""
        if self._is_begun and not self._is_over:
            self._is_over = True
            await self._end()

    def __del__(self) -> None:
        if self._is_begun and not self._is_over:
            self._is_over = True
            self._let_go()
