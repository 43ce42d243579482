"""Members of stream groups for blocking code."""

from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Self

from braidmq.blocking import LoopThread
from braidmq.consume.consumer import AsyncConsumer
from braidmq.message import Message
from braidmq.short_tracebacks import short_tracebacks


@short_tracebacks
class Consumer:
    """Reads a topic together with all other members of its stream group: iterate over it for messages.

    See `AsyncConsumer`, which does the work in the client's thread: heartbeats go on while your thread is busy. A loop
    over it that ends, also by `break` or an exception, closes it; within `with consumer:` the block does so.
    """

    def __init__(self, loop: LoopThread, consumer: AsyncConsumer) -> None:
        self._loop, self._consumer = loop, consumer
        self._entered = 0

    def __repr__(self) -> str:
        return repr(self._consumer).removeprefix("Async")

    def __enter__(self) -> Self:
        self._entered += 1
        self._loop.call(self._consumer.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered -= 1
        self._loop.call_at_end(self._consumer.__aexit__, kind, error, traceback)

    def __iter__(self) -> Iterator[Message]:
        return self._messages()

    def _messages(self) -> Generator[Message]:
        try:
            while (message := self._loop.call(self._consumer.take)) is not None:
                yield message
        finally:
            if not self._entered and self._loop.is_open:
                self._loop.call(self._consumer.close)

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._consumer.topic

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._consumer.group

    @property
    def member_id(self) -> str:
        """The name of this member."""
        return self._consumer.member_id

    @property
    def segments(self) -> list[int]:
        """The segments that this member has now."""
        return self._consumer.segments

    @property
    def fenced(self) -> int:
        """How often a commit came too late: another member had the segment, which goes on from the last commit."""
        return self._consumer.fenced

    def commit(self) -> None:
        """Commit all messages that were handed out, also the one in hand: when it returns, that is durable.

        Raises `MemberFenced` if another member had a segment by then: its messages come again there.
        """
        self._loop.call(self._consumer.commit)

    def stop(self) -> None:
        """Hand out nothing more: iteration ends. May be called from any thread, and by a signal's handler."""
        self._consumer.stop()

    def close(self) -> None:
        """Commit the messages that are done, unless you commit yourself; then leave the group, and stop."""
        self._loop.call_at_end(self._consumer.close)
