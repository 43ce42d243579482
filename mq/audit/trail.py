"""Stores records in the audit trail before their requests are answered."""

import asyncio
from collections.abc import Awaitable, Callable

from filer.clock import Clock
from filer.errors import BraidError
from filer.event_log import EventLog
from mq.audit.gathering import Gathering
from mq.audit.records import AuditRecord
from mq.base.errors import AuditFailed

REFUSALS_APART_SECONDS = 0.25
FIRST_REFUSALS = 40
"""Refusals alone are stored at once so often, then so far apart. So a flood of them is no flood of puts."""

StoreRecords = Callable[[Gathering], Awaitable[None]]
"""Returns once the records are on the store. Raises `BraidError`."""

_log = EventLog(__name__)


class AuditTrail:
    """Gathers records. Whenever a batch is stored, it stores those that came meanwhile.

    A request waits for its record, and is answered afterwards. So every answered request is in the trail, wherever a
    broker stops. A request that stopped before that had no answer; it may be done, and have no record. `on_failed` gets
    the number of records that may or may not be stored.
    """

    def __init__(
        self, clock: Clock, store: StoreRecords, on_failed: Callable[[int], object] = lambda records: None
    ) -> None:
        self._clock, self._store, self._on_failed = clock, store, on_failed
        self._next: _Batch | None = None
        self._free_seconds = clock.monotonic_seconds()
        self._storing: asyncio.Task[None] | None = None

    async def record(self, record: AuditRecord) -> None:
        """Return once the record is on the store. Raises `AuditFailed` if that is not known: it may be there later."""
        if self._next is None:
            self._next = _Batch()
        batch = self._next
        batch.records.add(record)
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_all(), name="audit")
        await asyncio.shield(batch.stored)

    async def close(self) -> None:
        """Stop. Requests that wait get the error that their record may be missing."""
        if self._storing is not None:
            self._storing.cancel()
            await asyncio.gather(self._storing, return_exceptions=True)

    async def _store_all(self) -> None:
        try:
            while (batch := self._next) is not None:
                await self._stand_back(batch)
                self._next = None
                await self._store_batch(batch)
        finally:
            self._storing = None
            if self._next is not None:
                self._next.end(_ENDED)
                self._next = None

    async def _stand_back(self, batch: "_Batch") -> None:
        """Wait until refusals may be stored. This is the generic cell rate algorithm, in one number."""
        if batch.records.has_changes:
            return
        now_seconds = self._clock.monotonic_seconds()
        self._free_seconds = max(self._free_seconds, now_seconds) + REFUSALS_APART_SECONDS
        wait_seconds = self._free_seconds - now_seconds - FIRST_REFUSALS * REFUSALS_APART_SECONDS
        if wait_seconds > 0:
            await self._clock.sleep(wait_seconds)

    async def _store_batch(self, batch: "_Batch") -> None:
        try:
            await self._store(batch.records)
        except BraidError as error:
            self._on_failed(len(batch.records))
            _log.error("audit_failed", records=len(batch.records), error=error)
            batch.end(str(error))
        except BaseException:
            batch.end(_ENDED)
            raise
        else:
            batch.stored.set_result(None)


_ENDED = "this broker has ended before that was stored"


class _Batch:
    """Records that are stored together, and the future that their requests wait for."""

    def __init__(self) -> None:
        self.records = Gathering()
        self.stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(self, why: str) -> None:
        """Report to the waiting requests that the records may be missing."""
        self.stored.set_exception(AuditFailed(f"it cannot be recorded in the audit trail: {why}"))
        # All of them may have gone. Reading the exception here keeps asyncio from reporting it as never retrieved.
        self.stored.exception()
