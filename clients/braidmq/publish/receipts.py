"""The receipts that a producer returns for its messages."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol

from braidmq.errors import BraidMQError, ClientClosed
from braidmq.positions import Acknowledgement, Position, PositionRange
from braidmq.short_tracebacks import shortened
from filer.clock import settle

ABANDONED = "the client or the producer was closed before this message was answered: it may be stored"
_MAX_UNASKED_FAILURES = 1000
_TURNS_OF_A_WAIT = 3
"""A wait whose outcome is known has ended after so many turns of the event loop."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request's messages; `positions` of each, unless they follow each other in one segment."""

    topic: str
    answered: tuple[PositionRange, ...]
    positions: Sequence[Position | None] | None

    def acknowledgement(self, row: int) -> Acknowledgement:
        """The acknowledgement of one message of the request."""
        if self.positions is None:
            only = self.answered[0]
            return Acknowledgement(self.topic, Position(only.segment, only.offset + row), self.answered)
        return Acknowledgement(self.topic, self.positions[row], self.answered)


class Receipts(Protocol):
    """The receipts of messages that came together. All of it is called in the event loop's thread."""

    def acknowledge(self, numbers: Sequence[int], answer: Answer, first_row: int) -> None:
        """Acknowledge these messages: they are the rows of the request from `first_row` on."""
        ...

    def fail(self, numbers: Sequence[int], failure: Exception) -> None:
        """Fail these messages with the failure of their request."""
        ...

    def abandon(self, numbers: Sequence[int]) -> None:
        """Give these messages up: their outcome will never be known."""
        ...

    def are_asked(self, numbers: Sequence[int]) -> bool:
        """Whether each of these receipts is awaited, or has reported its outcome."""
        ...

    def have_told(self, numbers: Sequence[int]) -> bool:
        """Whether each of these receipts has reported its outcome. A wait may end without that."""
        ...

    def failure(self, numbers: Sequence[int]) -> BaseException | None:
        """Why these messages failed, if they did. This does not count as asking for their receipts."""
        ...


class AsyncReceipt:
    """The acknowledgement of one message, to await.

    A wait that is cancelled, or whose time is over, changes nothing about the message: the receipt can be awaited
    again. If its receipt does not report a failure, the producer's `flush` raises the failure, or the end of its
    `async with` block. It has the methods of a future that `asyncio.wait` calls.
    """

    __slots__ = ("_callbacks", "_has_told", "_outcome", "_waiting")

    def __init__(self) -> None:
        self._outcome: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()
        self._has_told = False
        self._waiting = 0
        self._callbacks: tuple[tuple[_Callback, _OutcomeCallback], ...] = ()

    def __repr__(self) -> str:
        if not self._outcome.done():
            return "<Receipt pending>"
        # Looking at a receipt does not count as asking for it.
        failure = self._outcome.exception()
        return f"<Receipt {self._outcome.result() if failure is None else f'failed: {failure}'}>"

    @property
    def has_told(self) -> bool:
        """Whether the receipt has reported the outcome of the message."""
        return self._has_told

    @property
    def asked(self) -> bool:
        """Whether the receipt is awaited, has a callback, or has reported the outcome of the message."""
        return self._has_told or self._waiting > 0

    def __await__(self) -> Generator[Any, None, Acknowledgement]:
        if not self._outcome.done():
            self._waiting += 1
            try:
                # A caller that is cancelled gives up waiting, and not the message: others may wait for it too.
                yield from asyncio.wait((self._outcome,)).__await__()
            finally:
                self._waiting -= 1
        self._has_told = True
        return self._outcome.result()

    def done(self) -> bool:
        """Whether the outcome of the message is known."""
        return self._outcome.done()

    def cancelled(self) -> bool:
        """Never: a message that was sent cannot be called back."""
        return False

    def result(self) -> Acknowledgement:
        """Return the acknowledgement. Raises what the publish raised, and `asyncio.InvalidStateError` before."""
        self._has_told |= self._outcome.done()
        return self._outcome.result()

    def exception(self) -> BaseException | None:
        """Return what the publish raised, if anything. Raises `asyncio.InvalidStateError` before."""
        self._has_told |= self._outcome.done()
        return self._outcome.exception()

    def add_done_callback(self, callback: "_Callback", *, context: Context | None = None) -> None:
        """Call `callback` with the receipt once the outcome of the message is known."""

        def told(_: object) -> None:
            callback(self)

        self._waiting += 1
        self._callbacks += ((callback, told),)
        self._outcome.add_done_callback(told, context=context)

    def remove_done_callback(self, callback: "_Callback") -> int:
        """Remove the callback, and return how often it would have been called.

        It counts as a wait that has ended, also if it was called: `asyncio.wait` removes its callback in any case.
        """
        removed = [told for each, told in self._callbacks if each == callback]
        self._callbacks = tuple(each for each in self._callbacks if each[0] != callback)
        self._waiting -= len(removed)
        return sum(self._outcome.remove_done_callback(told) for told in removed)


_Callback = Callable[[AsyncReceipt], object]
_OutcomeCallback = Callable[[object], None]


class OneReceipt:
    """The receipt of a message that came alone, as `Receipts`."""

    def __init__(self, receipt: AsyncReceipt) -> None:
        self._receipt, self._outcome = receipt, receipt._outcome

    def acknowledge(self, numbers: Sequence[int], answer: Answer, first_row: int) -> None:
        """As `Receipts`."""
        if not self._outcome.done():
            self._outcome.set_result(answer.acknowledgement(first_row))

    def fail(self, numbers: Sequence[int], failure: Exception) -> None:
        """As `Receipts`."""
        if not self._outcome.done():
            self._outcome.set_exception(failure)

    def abandon(self, numbers: Sequence[int]) -> None:
        """As `Receipts`."""
        if not self._outcome.done():
            self._outcome.set_exception(ClientClosed(ABANDONED))
            self.failure(numbers)

    def are_asked(self, numbers: Sequence[int]) -> bool:
        """As `Receipts`."""
        return self._receipt.asked

    def have_told(self, numbers: Sequence[int]) -> bool:
        """As `Receipts`."""
        return self._receipt.has_told

    def failure(self, numbers: Sequence[int]) -> BaseException | None:
        """As `Receipts`. It keeps asyncio from logging the failure."""
        return self._outcome.exception()


class UnaskedFailures:
    """The failed receipts of a producer that were not asked for since its last flush."""

    def __init__(self) -> None:
        self._failed: list[tuple[Receipts, Sequence[int]]] = []

    def fail(self, receipts: Receipts, numbers: Sequence[int], failure: Exception) -> None:
        """Fail those of the receipts that have no outcome yet, and keep them."""
        receipts.fail(numbers, shortened(failure) if isinstance(failure, BraidMQError) else failure)
        self._keep(receipts, numbers)

    def abandon(self, receipts: Receipts, numbers: Sequence[int]) -> None:
        """Abandon those of the receipts that have no outcome yet, and keep them."""
        receipts.abandon(numbers)
        self._keep(receipts, numbers)

    def _keep(self, receipts: Receipts, numbers: Sequence[int]) -> None:
        # Bounded, for producers that never flush: the first ones are reported.
        if len(self._failed) >= _MAX_UNASKED_FAILURES:
            self._failed = self._unasked()
        if len(self._failed) < _MAX_UNASKED_FAILURES:
            self._failed.append((receipts, numbers))

    def count(self) -> int:
        """How many failed messages were not asked for."""
        return sum(len(numbers) for _, numbers in self._unasked())

    async def raise_first(self) -> None:
        """Raise the first failure that no receipt has reported and whose receipt is not awaited.

        Failures with an awaited receipt are kept for the next time: a wait may be cancelled in the very turn of the
        event loop in which the failure comes, and then does not report it. All others are forgotten.
        """
        if any(receipts.are_asked(numbers) for receipts, numbers in self._untold()):
            await settle(_TURNS_OF_A_WAIT)
        untold = self._untold()
        self._failed = [each for each in untold if each[0].are_asked(each[1])]
        # All of them are retrieved, which keeps asyncio from logging the others.
        errors = [receipts.failure(numbers) for receipts, numbers in untold if not receipts.are_asked(numbers)]
        for error in errors:
            if error is not None:
                raise error

    def _untold(self) -> list[tuple[Receipts, Sequence[int]]]:
        return [each for each in self._failed if not each[0].have_told(each[1])]

    def _unasked(self) -> list[tuple[Receipts, Sequence[int]]]:
        return [each for each in self._failed if not each[0].are_asked(each[1])]
