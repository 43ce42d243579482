"""What a producer returns for each message."""

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

from braidmq.errors import BraidMQError
from braidmq.positions import Acknowledgement
from braidmq.short_tracebacks import shortened

_MAX_UNASKED_FAILURES = 1000


class AsyncReceipt(asyncio.Future[Acknowledgement]):
    """The acknowledgement of one message, to await.

    If nobody asks for a failed receipt, the producer's `flush` raises the failure, or the end of its `async with`
    block.
    """

    asked = False

    def __repr__(self) -> str:
        if not self.done():
            return "<Receipt pending>"
        if self.cancelled():
            return "<Receipt cancelled>"
        # Looking at a receipt does not count as asking for it.
        failure = super().exception()
        return f"<Receipt {super().result() if failure is None else f'failed: {failure}'}>"

    def __await__(self) -> Generator[Any, None, Acknowledgement]:
        self.asked = True
        return super().__await__()

    def add_done_callback(self, *args: Any, **kwargs: Any) -> None:
        """As for any future; `asyncio.gather` and `asyncio.wait` call this."""
        self.asked = True
        super().add_done_callback(*args, **kwargs)

    def result(self) -> Acknowledgement:
        """Return the acknowledgement. Raises what the publish raised."""
        self.asked = True
        return super().result()

    def exception(self) -> BaseException | None:
        """Return what the publish raised, if anything."""
        self.asked = True
        return super().exception()


class UnaskedFailures:
    """The failed receipts of a producer that nobody has asked for since its last flush."""

    def __init__(self) -> None:
        self._failed: list[AsyncReceipt] = []

    def fail(self, receipts: Sequence[AsyncReceipt], failure: Exception) -> None:
        """Fail those of the receipts that have no outcome yet, and keep them."""
        if isinstance(failure, BraidMQError):
            failure = shortened(failure)
        failed = [receipt for receipt in receipts if not receipt.done()]
        for receipt in failed:
            receipt.set_exception(failure)
        # Bounded, for producers that never flush. asyncio logs a dropped failure if nobody asks for it.
        unasked = [receipt for receipt in self._failed if not receipt.asked]
        self._failed = (unasked + failed)[:_MAX_UNASKED_FAILURES]

    def raise_first(self) -> None:
        """Raise the first failure that nobody has asked for, and forget them all."""
        failed, self._failed = self._failed, []
        unasked = [receipt for receipt in failed if not receipt.asked]
        # Asking all of them keeps asyncio from logging the others.
        errors = [asyncio.Future.exception(receipt) for receipt in unasked]
        for error in errors:
            if error is not None:
                raise error
