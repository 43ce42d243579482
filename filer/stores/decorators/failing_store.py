"""A store whose calls fail as planned, for simulation and for tests, those of users included."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from filer.clock import Clock
from filer.errors import OutcomeUnknown
from filer.stores.decorators.faults import Fault, FaultKind, FaultPlan
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo, Store

R = TypeVar("R")
_FAILS_BEFORE = {FaultKind.FAIL_BEFORE, FaultKind.CONFLICT, FaultKind.UNAVAILABLE}


class FailingStore(ForwardingStore):
    """Applies to each call the fault that the plan draws for it.

    Calls `on_point(point, key)` with `before <operation>` and, once the call took effect, with `after <operation>`.
    It may raise, or kill the process. `hung` counts the calls that wait for `release`.
    """

    def __init__(
        self,
        inner: Store,
        faults: FaultPlan,
        *,
        clock: Clock,
        on_point: Callable[[str, str], None] = lambda point, key: None,
    ) -> None:
        super().__init__(inner)
        self._faults = faults
        self._clock = clock
        self._on_point = on_point
        self._released = asyncio.Event()
        self.hung = 0

    def release(self) -> None:
        """Let all calls that hang now continue."""
        self._released.set()
        self._released = asyncio.Event()

    async def tell_time(self) -> int:
        """As `Store.tell_time`."""
        return await self._call("tell_time", "", self.inner.tell_time)

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`."""
        await self._call("create", key, lambda: self.inner.create(key, data, metadata=metadata))

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`."""
        return await self._call("replace", key, lambda: self.inner.replace(key, data, etag=etag))

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        return await self._call("get", key, lambda: self.inner.get(key, start=start, stop=stop))

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        return await self._call("head", key, lambda: self.inner.head(key))

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`. A lost answer is lost after the first object."""
        fault = self._faults.draw("list", prefix)
        self._on_point("before list", prefix)
        await self._apply_before(fault)
        async for info in self.inner.list(prefix, after=after, limit=limit):
            yield info
            await self._apply_after(fault)
            fault = None
        self._on_point("after list", prefix)

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`."""
        return await self._call("list_folders", prefix, lambda: self.inner.list_folders(prefix))

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`. The plan and `on_point` get the first key."""
        names = tuple(keys)
        await self._call("delete", names[0] if names else "", lambda: self.inner.delete(names))

    async def _call(self, operation: str, key: str, call: Callable[[], Awaitable[R]]) -> R:
        fault = self._faults.draw(operation, key)
        self._on_point(f"before {operation}", key)
        await self._apply_before(fault)
        result = await call()
        self._on_point(f"after {operation}", key)
        await self._apply_after(fault)
        return result

    async def _apply_before(self, fault: Fault | None) -> None:
        if fault is None:
            return
        if fault.kind in _FAILS_BEFORE:
            raise OutcomeUnknown(fault.kind.value)
        if fault.kind is FaultKind.DELAY:
            await self._clock.sleep(fault.seconds)
        elif fault.kind is FaultKind.HANG:
            await self._hang()

    async def _apply_after(self, fault: Fault | None) -> None:
        if fault is None:
            return
        if fault.kind is FaultKind.LOSE_ANSWER:
            raise OutcomeUnknown(fault.kind.value)
        if fault.kind is FaultKind.HANG_ANSWER:
            await self._hang()

    async def _hang(self) -> None:
        self.hung += 1
        try:
            await self._released.wait()
        finally:
            self.hung -= 1
