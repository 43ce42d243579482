"""What a producer hands out for each message, and what it keeps of it until the answer is there."""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from braidmq.outgoing import Row
from braidmq.positions import Acknowledgement


class AsyncReceipt(asyncio.Future[Acknowledgement]):
    """The acknowledgement of one message, to be awaited.

    A failure that nobody asks for is raised by the producer's `flush`, or when its block is left.
    """

    asked = False

    def __await__(self) -> Generator[Any, None, Acknowledgement]:
        self.asked = True
        return super().__await__()

    def add_done_callback(self, *args: Any, **kwargs: Any) -> None:
        """As of any future: `asyncio.gather` and `asyncio.wait` come this way."""
        self.asked = True
        super().add_done_callback(*args, **kwargs)

    def result(self) -> Acknowledgement:
        """The acknowledgement; raises what the publish raised."""
        self.asked = True
        return super().result()

    def exception(self) -> BaseException | None:
        """What the publish raised, if anything."""
        self.asked = True
        return super().exception()


@dataclass(slots=True)  # not frozen: that costs a call for each field, and there is one of these for each message
class Pending:
    """A message without an answer: `number` is its place among the producer's, `era` counts the flushes before."""

    row: Row
    size_bytes: int
    receipt: AsyncReceipt
    due_seconds: float
    number: int
    era: int
