"""What a producer returns for each message."""

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from braidmq.errors import BraidMQError
from braidmq.positions import Acknowledgement, Position, PositionRange
from braidmq.short_tracebacks import shortened

_MAX_UNASKED_FAILURES = 1000


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
        """Whether somebody has asked the receipts of all these messages."""
        ...

    def failure(self, numbers: Sequence[int]) -> BaseException | None:
        """Why these messages failed, if they did. This asks nobody's receipt."""
        ...


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


class OneReceipt:
    """The receipt of a message that came alone, as `Receipts`."""

    def __init__(self, receipt: AsyncReceipt) -> None:
        self._receipt = receipt

    def acknowledge(self, numbers: Sequence[int], answer: Answer, first_row: int) -> None:
        """As `Receipts`. A receipt that its owner has cancelled stays as it is."""
        if not self._receipt.done():
            self._receipt.set_result(answer.acknowledgement(first_row))

    def fail(self, numbers: Sequence[int], failure: Exception) -> None:
        """As `Receipts`."""
        if not self._receipt.done():
            self._receipt.set_exception(failure)

    def abandon(self, numbers: Sequence[int]) -> None:
        """As `Receipts`."""
        self._receipt.cancel()

    def are_asked(self, numbers: Sequence[int]) -> bool:
        """As `Receipts`."""
        return self._receipt.asked

    def failure(self, numbers: Sequence[int]) -> BaseException | None:
        """As `Receipts`. It keeps asyncio from logging the failure."""
        return None if self._receipt.cancelled() else asyncio.Future.exception(self._receipt)


class UnaskedFailures:
    """The failed receipts of a producer that nobody has asked for since its last flush."""

    def __init__(self) -> None:
        self._failed: list[tuple[Receipts, Sequence[int]]] = []

    def fail(self, receipts: Receipts, numbers: Sequence[int], failure: Exception) -> None:
        """Fail those of the receipts that have no outcome yet, and keep them."""
        receipts.fail(numbers, shortened(failure) if isinstance(failure, BraidMQError) else failure)
        # Bounded, for producers that never flush: the first ones are told.
        if len(self._failed) >= _MAX_UNASKED_FAILURES:
            self._failed = self._unasked()
        if len(self._failed) < _MAX_UNASKED_FAILURES:
            self._failed.append((receipts, numbers))

    def raise_first(self) -> None:
        """Raise the first failure that nobody has asked for, and forget them all."""
        # All of them are looked at, which keeps asyncio from logging the others.
        errors = [receipts.failure(numbers) for receipts, numbers in self._unasked()]
        self._failed = []
        for error in errors:
            if error is not None:
                raise error

    def _unasked(self) -> list[tuple[Receipts, Sequence[int]]]:
        return [each for each in self._failed if not each[0].are_asked(each[1])]
