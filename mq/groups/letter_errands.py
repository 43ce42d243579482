"""What a queue group publishes by itself, with no caller waiting: dead letters, and redriven ones."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import BraidError
from filer.event_log import EventLog
from groups.queue.progress import QueueProgress
from groups.records import Dying, Redriven, Redriving
from mq.base.errors import NotFound
from mq.groups.group_records import GroupRecords

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 5.0

_log = EventLog(__name__)

Bury = Callable[[QueueProgress, Dying], Awaitable[None]]
"""Stores the dead letters of messages that are given up."""
PublishAgain = Callable[[QueueProgress, Redriving], Awaitable[None]]
"""Publishes dead letters to the group's topic again."""


class _Tries:
    """The tries of one errand. Its error is logged when it changes, however often it is tried."""

    def __init__(self, clock: Clock, log: Callable[[BraidError], None]) -> None:
        self._log = log
        self._backoff = Backoff(clock, first_seconds=FIRST_RETRY_SECONDS, longest_seconds=LONGEST_RETRY_SECONDS)
        self.why: str | None = None

    def failed(self, error: BraidError) -> None:
        """Note that a try has failed: call `pause` before the next one."""
        if self.why != (why := str(error)):
            self._log(error)
            self.why = why

    async def pause(self) -> None:
        """Wait until the next try."""
        await self._backoff.pause()

    def succeeded(self) -> None:
        """Note a success: the next failure counts as the first."""
        self.why = None
        self._backoff.reset()


class LetterErrands:
    """Publishes by `bury` and `publish_again`, then reports that it is done. Tries again for as long as it takes."""

    def __init__(
        self, topic: str, group: str, clock: Clock, records: GroupRecords, *, bury: Bury, publish_again: PublishAgain
    ) -> None:
        self._topic, self._group, self._clock, self._records = topic, group, clock, records
        self._bury, self._publish_again = bury, publish_again
        self._attempt: asyncio.Future[None] | None = None
        self._burying = _Tries(clock, self._log_burying_failed)
        self._redriving = _Tries(clock, self._log_redriving_failed)

    def _log_burying_failed(self, error: BraidError) -> None:
        _log.warning("dead_letters_delayed", topic=self._topic, group=self._group, error=error)

    def _log_redriving_failed(self, error: BraidError) -> None:
        _log.warning("redrive_delayed", topic=self._topic, group=self._group, error=error)

    @property
    def why_not_buried(self) -> str | None:
        """The error of the last try to store dead letters; None if it succeeded."""
        return self._burying.why

    async def bury_all(self, progress: QueueProgress, dying: Sequence[Dying], buried: Callable[[Dying], None]) -> None:
        """Store dead letters, then report that they are stored.

        Stopped in between, the next coordinator stores them again, under the same sequences: they are there once.
        """
        for each in dying:
            try:
                await self._bury(progress, each)
            except BraidError as error:
                if self._is_over(error):
                    return
                self._burying.failed(error)
                await self._burying.pause()
                return
            self._burying.succeeded()
            buried(each)

    async def redrive(self, progress: QueueProgress, redriving: Redriving, may_store: Callable[[], bool]) -> None:
        """Publish dead letters again, then store that they are.

        Stopped in between, the next coordinator publishes them again, under the same sequence: they are there once.
        """
        try:
            await self._publish_again(progress, redriving)
        except BraidError as error:
            if self._is_over(error):
                return
            self._redriving.failed(error)
            self._end_attempt(error)
            await self._redriving.pause()
            return
        self._redriving.succeeded()
        async with self._records.at_rest():
            if may_store():
                record = Redriven(at=self._clock.now_us() // 1000)
                await self._records.store(record)
                progress.redrive(record)
        self._end_attempt(None)

    def _is_over(self, error: BraidError) -> bool:
        """Whether the topic's name means something else by now, so that the group is over.

        Then the errand is dropped, and not tried for ever. That is safe wherever it stops: the records are of a topic
        that is gone, and whatever reads them again finds the group to be over as well.
        """
        is_over = isinstance(error, NotFound) and error.what == "group"
        if is_over:
            self._records.lose(error)
        return is_over

    def attempt(self) -> "asyncio.Future[None]":
        """Return a future for the end of the present or next attempt to redrive. It raises the attempt's error."""
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_future()
        return self._attempt

    def end(self, error: BraidError) -> None:
        """Publish nothing any more."""
        self._end_attempt(error)

    def _end_attempt(self, error: BraidError | None) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is None or attempt.done():
            return
        if error is None:
            attempt.set_result(None)
        else:
            attempt.set_exception(error)
            attempt.exception()
