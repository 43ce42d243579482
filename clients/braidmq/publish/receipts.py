"""What a producer returns for each message."""

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
"""By so many turns of the event loop a wait has ended whose outcome is known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request's messages were answered; `positions` of each, unless they follow each other in one segment."""

    topic: str
    answered: tuple[PositionRange, ...]
    positions: Sequence[Position | None] | None

    def acknowledgement(self, row: int) -> Acknowledgement:
        """That of one message of the request."""
        if self.positions is None:
            only = self.answered[0]
            return Acknowledgement(self.topic, Position(only.segment, only.offset + row), self.answered)
        return Acknowledgement(self.topic, self.positions[row], self.answered)


class Receipts(Protocol):
    """The receipts of messages that came together. All of it is called in the event loop's thread."""

    def acknowledge(self, numbers: Sequence[int], answer: Answer, first_row: int) -> None:
        """These messages are the rows of the request from `first_row` on."""
        ...

    def fail(self, numbers: Sequence[int], failure: Exception) -> None:
        """What happened to the request of these messages."""
        ...

    def abandon(self, numbers: Sequence[int]) -> None:
        """Nobody will know what became of these messages."""
        ...

    def are_asked(self, numbers: Sequence[int]) -> bool:
        """Whether each of these receipts is awaited, or has told its outcome."""
        ...

    def have_told(self, numbers: Sequence[int]) -> bool:
        """Whether each of these receipts has told its outcome. A wait may end without that."""
        ...

    def failure(self, numbers: Sequence[int]) -> BaseException | None:
        """Why these messages failed, if they did. This asks nobody's receipt."""
        ...


class AsyncReceipt:
    """The acknowledgement of one message, to await.

    A wait that is cancelled, or whose time is over, changes nothing about the message: the receipt can be awaited
    again. If nobody is told of a failure by its receipt, the producer's `flush` raises it, or the end of its
    `async with` block. What `asyncio.wait` calls is there, as of a future.
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
        """Whether the receipt has told what became of the message."""
        return self._has_told

    @property
    def asked(self) -> bool:
        """Whether the receipt is awaited, has a callback, or has told what became of the message."""
        return self._has_told or self._waiting > 0

    def __await__(self) -> Generator[Any, None, Acknowledgement]:
        if not self._outcome.done():
            self._waiting += 1
            try:
                # Whoever is cancelled gives up waiting, and not the message: others may wait for it too.
                yield from asyncio.wait((self._outcome,)).__await__()
            finally:
                self._waiting -= 1
        self._has_told = True
        return self._outcome.result()

    def done(self) -> bool:
        """Whether it is known what became of the message."""
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
        """Have this called with the receipt, once it is known what became of the message."""

        def told(_: object) -> None:
            callback(self)

        self._waiting += 1
        self._callbacks += ((callback, told),)
        self._outcome.add_done_callback(told, context=context)

    def remove_done_callback(self, callback: "_Callback") -> int:
        """Have it called no more, and return how often it would have been.

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
    """The failed receipts of a producer that nobody has asked for since its last flush."""

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
        # Bounded, for producers that never flush: the first ones are told.
        if len(self._failed) >= _MAX_UNASKED_FAILURES:
            self._failed = self._unasked()
        if len(self._failed) < _MAX_UNASKED_FAILURES:
            self._failed.append((receipts, numbers))

    def count(self) -> int:
        """How many messages have failed that nobody has asked for."""
        return sum(len(numbers) for _, numbers in self._unasked())

    async def raise_first(self) -> None:
        """Raise the first failure that no receipt has told and none is awaited for.

        Those of receipts that are awaited are kept for the next time: a wait may be cancelled in the very turn of the
        event loop in which the failure has come, and tells it to nobody then. All others are forgotten.
        """
        if any(receipts.are_asked(numbers) for receipts, numbers in self._untold()):
            await settle(_TURNS_OF_A_WAIT)
        untold = self._untold()
        self._failed = [each for each in untold if each[0].are_asked(each[1])]
        # All of them are looked at, which keeps asyncio from logging the others.
        errors = [receipts.failure(numbers) for receipts, numbers in untold if not receipts.are_asked(numbers)]
        for error in errors:
            if error is not None:
                raise error

    def _untold(self) -> list[tuple[Receipts, Sequence[int]]]:
        return [each for each in self._failed if not each[0].have_told(each[1])]

    def _unasked(self) -> list[tuple[Receipts, Sequence[int]]]:
        return [each for each in self._failed if not each[0].are_asked(each[1])]
