"""All groups that this broker coordinates because it owns one segment of `__groups`."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from filer.clock import Clock
from filer.errors import BraidError, SegmentMoved
from filer.event_log import EventLog
from filer.keys import GROUPS_TOPIC
from groups.fold import GroupProgress, new_progress
from groups.incarnations import incarnation_id, origin_of
from groups.queue.progress import QueueProgress
from groups.records import CHECKPOINT_KEY, Checkpoint, Created, Record, Snapshot, key_of, topic_and_group
from groups.settings import GroupSettings
from mq.base.end_tasks import raise_first
from mq.base.errors import Conflict, NotFound
from mq.groups import group_log
from mq.groups.change_gate import ChangeGate
from mq.groups.group_log import GroupLog
from mq.groups.group_records import Append
from mq.groups.group_room import Maker, count_of_makers, to_go
from mq.groups.group_source import Beginning
from mq.groups.queue_group import QueueGroup
from mq.groups.stream_group import StreamGroup

AT_ONCE = 64
FULL_BYTES = 8 * 1024 * 1024
"""When so much of a checkpoint is not stored yet, the rest waits."""
MOST_GROUPS = 10_000
"""Each takes some kilobytes of memory, and claims create groups."""
LOOK_SECONDS = 1.0
"""A search for groups that may go takes some milliseconds, and each refused claim would take as much."""

NO_MAKER = Maker()

Group = QueueGroup | StreamGroup

_log = EventLog(__name__)


class MakeGroup(Protocol):
    """Makes the runtime of a group."""

    def __call__(
        self,
        topic: str,
        name: str,
        progress: GroupProgress,
        *,
        append: Append,
        on_lost: Callable[[BaseException], None],
    ) -> Group:
        """As `QueueGroup` or `StreamGroup`, according to the progress."""
        ...


class Known(NamedTuple):
    """A group by its topic and its own name. `in_flight`: messages that consumers have.

    `positions`: the first offsets that were not looked at for it.
    """

    name: tuple[str, str]
    progress: GroupProgress
    in_flight: int
    positions: Mapping[int, int]


class SegmentGroups:
    """The groups of one segment, by key. All methods belong to the event loop's thread.

    It begins to replay the log at once, and callers wait meanwhile. If the log cannot be read, all of them get the
    error, and the next call tries again. A group costs no more than its progress until a caller asks for it.
    """

    def __init__(self, log: GroupLog, clock: Clock, make_group: MakeGroup) -> None:
        self._log, self._clock, self._make_group = log, clock, make_group
        self._groups: dict[str, Group] = {}
        self._untouched: dict[str, GroupProgress] = {}
        self._gate = ChangeGate()
        self._appended = 0
        # How many groups each maker has created; None: the log is read again, and then they are counted.
        self._makers: Counter[tuple[str, str]] | None = None
        self._making: Counter[tuple[str, str]] = Counter()
        # The topics and makers without a group that may go, and until when that is not checked again. None: all.
        self._none_idle_until: dict[tuple[str, str] | None, float] = {}
        self._is_closed = self._is_broken = False
        self._replaying = asyncio.create_task(self._replay(), name=f"replay __groups/{log.segment}")
        self._checkpointing: asyncio.Task[None] | None = None
        # The first offset that the last checkpoint needs, and its own.
        self._last_checkpoint: tuple[int, int] | None = None

    @property
    def floor(self) -> int | None:
        """Nothing of the log below this offset is needed, nor of the segments before; None if that is not known.

        Files are deleted by it, so the checkpoint is on the store by then, and not only with followers.
        """
        if self._last_checkpoint is None or self._log.stored_end <= self._last_checkpoint[1]:
            return None
        return self._last_checkpoint[0]

    async def ready(self) -> None:
        """Wait until the log is replayed. Raises as `GroupLog.replay`, and `SegmentMoved` once this is closed."""
        if self._replaying.done() and not self._is_closed and (self._is_broken or _has_failed(self._replaying)):
            self._replaying = asyncio.create_task(self._replay(), name=f"replay __groups/{self._log.segment}")
        if not self._is_closed:
            await asyncio.shield(self._replaying)
        if self._is_closed:
            raise SegmentMoved(f"segment {self._log.segment} of __groups has another owner")

    def find(self, topic: str, name: str) -> Group | None:
        """Return the group, if there is one. Call it when this is ready.

        Raises `SegmentMoved` if it is not ready any more, since the log is read again by now. Then it is not known
        whether there is one, and a caller that took it for missing would create it anew, from its first message on.
        """
        if self._is_closed or not self._replaying.done() or _has_failed(self._replaying):
            raise SegmentMoved(f"the groups of segment {self._log.segment} are being read again")
        key = key_of(topic, name)
        if key in self._untouched:
            self._make(key, self._untouched.pop(key))
        return self._groups.get(key)

    async def create(
        self,
        topic: str,
        name: str,
        settings: GroupSettings,
        begin: Callable[[], Awaitable[Beginning]],
        maker: Maker = NO_MAKER,
    ) -> tuple[Group, bool]:
        """Return the group, and whether it was created just now: where `begin` says, with these settings.

        Stopped before that is stored, there is no group; stopped after it, it begins at that place. Raises `Conflict`
        if there are too many, or too many of that maker and topic.
        """
        key = key_of(topic, name)
        async with self._gate.change(key):
            if (group := self.find(topic, name)) is not None:
                return group, False
            whose = (topic, maker.origin.maker)
            self._making[whose] += 1
            try:
                return await self._create(key, settings, begin, maker), True
            finally:
                self._making -= Counter([whose])

    async def _create(
        self, key: str, settings: GroupSettings, begin: Callable[[], Awaitable[Beginning]], maker: Maker
    ) -> Group:
        topic, name = topic_and_group(key)
        await self._make_room(topic, name, maker)
        first = await begin()
        group_id = incarnation_id(self._clock.ulid(), maker.origin)
        record = Created(
            at=self._clock.now_us() // 1000,
            id=group_id,
            settings=settings.in_force(),
            positions=list(first.positions.items()),
            source=first.source,
        )
        await self._append(key, record)
        self._count_made(topic, group_id, 1)
        _log.info("group_created", topic=topic, group=name, mode=settings.mode)
        return self._make(key, new_progress(group_id, settings, first.positions, first.source))

    async def _make_room(self, topic: str, name: str, maker: Maker) -> None:
        """End groups that claims have created and that hold nothing, if there are too many. Raises `Conflict`."""
        whose = (topic, maker.origin.maker)
        if maker.origin.maker and self._count_of(whose) > maker.most and not await self._end_idle(whose):
            raise Conflict(
                "too-many-groups",
                f"this principal has made {maker.most} groups of topic {topic!r} at the coordinator of group {name!r}, "
                "which is the most it may have (groups, in its quota): delete some",
            )
        # The others that are on their way may be new as well.
        while len(self._groups) + len(self._untouched) + self._gate.inside > MOST_GROUPS:
            if not await self._end_idle(None):
                raise Conflict(
                    "too-many-groups",
                    f"the coordinator of group {name!r} has {MOST_GROUPS} groups, which is the most there may be: "
                    f"delete some, or split topic {GROUPS_TOPIC}",
                )

    def _count_of(self, whose: tuple[str, str]) -> int:
        """How many groups of that topic that maker has, including those on their way."""
        if self._makers is None:
            touched = [(key, group.progress) for key, group in self._groups.items()]
            self._makers = count_of_makers([*self._untouched.items(), *touched])
        return self._makers[whose] + self._making[whose]

    def _count_made(self, topic: str, group_id: str, change: int) -> None:
        """Count a group that has come or gone. To count all of them again for each would cost a claim milliseconds."""
        if self._makers is not None:
            self._makers[(topic, origin_of(group_id).maker)] += change

    async def _end_idle(self, whose: tuple[str, str] | None) -> int:
        """End some groups that can go without harm, of one topic and maker or of all; returns how many have gone."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds < self._none_idle_until.get(whose, now_seconds):
            return 0
        unasked = {key: group.progress for key, group in self._groups.items() if group.is_unasked}
        count = 0
        for key in to_go({**self._untouched, **unasked}, of=whose):
            # A group that has got state meanwhile stays.
            with contextlib.suppress(BraidError):
                group = self.find(*topic_and_group(key))
                count += group is not None and await group.make_room()
        if not count:
            if len(self._none_idle_until) >= MOST_GROUPS:
                self._none_idle_until.clear()
            self._none_idle_until[whose] = now_seconds + LOOK_SECONDS
        return count

    async def reset(
        self, topic: str, name: str, positions: Callable[[], Awaitable[Mapping[int, int]]], *, force: bool
    ) -> Group:
        """Make a group begin anew at the `positions`. Raises `NotFound`, and as `QueueGroup.reset`.

        No checkpoint is written meanwhile: the incarnation that ends could not write its part.
        """
        begin = await positions()
        async with self._gate.change(key_of(topic, name)):
            group = self._existing(topic, name)
            # A group that shows the progress of a Spark query comes here with each of its micro-batches.
            is_news = isinstance(group, QueueGroup) or not group.progress.is_moved_by_resets
            progress = await group.reset(dict(begin), force=force)
            if is_news:
                _log.info("group_reset", topic=topic, group=name, forced=force)
            fresh = self._make(key_of(topic, name), progress)
        await group.close()
        if progress.has_errands:
            fresh.run()
        return fresh

    def _existing(self, topic: str, name: str) -> Group:
        group = self.find(topic, name)
        if group is None:
            raise NotFound("group", f"topic {topic!r} has no group {name!r}")
        return group

    def of_topic(self, topic: str) -> list[tuple[str, GroupProgress]]:
        """Return all groups of a topic by name. Call it when this is ready."""
        return sorted(
            ((each.name[1], each.progress) for each in self.known() if each.name[0] == topic), key=lambda each: each[0]
        )

    def has_groups_of(self, topic: str) -> bool:
        """Whether there is a group of that topic, as far as this is ready."""
        begin = key_of(topic, "")
        return any(key.startswith(begin) for groups in (self._untouched, self._groups) for key in groups)

    def known(self) -> list[Known]:
        """Return all groups; none before the log is replayed."""
        untouched = [
            Known(topic_and_group(key), progress, 0, progress.positions()) for key, progress in self._untouched.items()
        ]
        return untouched + [
            Known(
                topic_and_group(key),
                group.progress,
                group.in_flight if isinstance(group, QueueGroup) else 0,
                group.positions(),
            )
            for key, group in self._groups.items()
        ]

    async def delete(self, topic: str, name: str) -> None:
        """Delete a group. Raises `NotFound`."""
        await self._existing(topic, name).delete()
        _log.info("group_deleted", topic=topic, group=name)

    async def end(self, group: Group) -> None:
        """Delete a group if it is over, because its topic's name means something else by now.

        That very group: another one of its name, created meanwhile, stays. Stopped before that is stored, it is still
        there, and is over still; stopped after it, there is none. Raises `SegmentMoved` if it is being deleted already.
        """
        if await group.end():
            _log.info("group_ended", topic=group.topic, group=group.name)

    async def hand_over(self) -> None:
        """Make every group write down what the next coordinator has to know, as far as that is possible."""
        await asyncio.gather(*(group.hand_over() for group in self._groups.values()), return_exceptions=True)

    async def close(self) -> None:
        """End: this broker does not own the segment any more."""
        self._is_closed = True
        tasks = [task for task in (self._replaying, self._checkpointing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(group.close() for group in list(self._groups.values())), return_exceptions=True)

    # -- the log ---------------------------------------------------------------------------------------------

    async def _replay(self) -> None:
        began_seconds = self._clock.monotonic_seconds()
        groups, self._groups, self._untouched, self._makers = self._groups, {}, {}, None
        await asyncio.gather(*(group.close() for group in groups.values()), return_exceptions=True)
        fold = await self._log.replay()
        self._untouched, self._appended, self._is_broken = dict(fold.groups), fold.records, False
        for key, progress in fold.groups.items():
            # Messages that the coordinator before has handed out are with consumers from now on, and not only from the
            # first call on: they are shown as in flight, and come back no later.
            if progress.has_errands or (isinstance(progress, QueueProgress) and progress.may_be_leased):
                del self._untouched[key]
                group = self._make(key, progress)
                if progress.has_errands:
                    group.run()
        duration_seconds = round(self._clock.monotonic_seconds() - began_seconds, 3)
        _log.info(
            "groups_taken_over",
            segment=self._log.segment,
            groups=len(fold.groups),
            records=fold.records,
            segments=fold.segments,
            duration_seconds=duration_seconds,
        )
        if fold.segments > group_log.CHECKPOINT_SEGMENTS:
            self._begin_checkpoint()

    def _make(self, key: str, progress: GroupProgress) -> Group:
        topic, name = topic_and_group(key)
        group = self._make_group(
            topic, name, progress, append=partial(self._append, key), on_lost=partial(self._forget, key)
        )
        self._groups[key] = group
        return group

    def _forget(self, key: str, error: BaseException) -> None:
        """Drop a group that was deleted. If a group could not store a record, it is not known what counts any more.

        Mostly the segment is lost, and this ends. Otherwise the log is read again before any caller is answered.
        """
        if isinstance(error, NotFound):
            if (group := self._groups.pop(key, None)) is not None:
                self._count_made(group.topic, group.progress.id, -1)
        else:
            self._is_broken = True

    async def _append(self, key: str, record: Record) -> int:
        offset = await self._log.append(key, record, replicated=self._acks_of(key, record) == "replicated")
        self._appended += 1
        count = len(self._groups) + len(self._untouched)
        if self._appended >= max(group_log.CHECKPOINT_RECORDS, 2 * count):
            self._begin_checkpoint()
        return offset

    def _begin_checkpoint(self) -> None:
        if self._checkpointing is None:
            self._checkpointing = asyncio.create_task(
                self._write_checkpoint(), name=f"checkpoint of __groups/{self._log.segment}"
            )

    def _acks_of(self, key: str, record: Record) -> str:
        """When a record of that group counts as durable."""
        if isinstance(record, Created):
            return str(record.settings["acks"])
        progress = self._untouched.get(key) or self._groups[key].progress
        return progress.settings.acks

    async def _write_checkpoint(self) -> None:
        """Store a snapshot of each group, then the position of the first of them.

        No group is created meanwhile: its first record could lie before the first snapshot, without one of its own.
        Stopped in between, the next owner reads from the checkpoint before. A snapshot alone changes nothing.
        """
        self._appended = 0
        offsets: list[int] = []

        async def write(key: str) -> None:
            if (progress := self._untouched.get(key)) is not None:
                snapshot = Snapshot(at=self._clock.now_us() // 1000, state=progress.to_plain())
                offsets.append(await self._log.append(key, snapshot, replicated=True))
            elif (group := self._groups.get(key)) is not None:
                offsets.append(await group.write_snapshot())

        try:
            async with self._gate.checkpoint():
                await self._for_each([*self._untouched, *self._groups], write)
                # If there are no groups, none of the stored records is needed.
                at_ms, first = self._clock.now_us() // 1000, min(offsets, default=self._log.stored_end)
                checkpoint = Checkpoint(at=at_ms, positions=[(self._log.segment, first)])
                self._last_checkpoint = first, await self._log.append(CHECKPOINT_KEY, checkpoint, replicated=True)
        except BraidError as error:
            # Nothing depends on it: the next one comes after as many records again.
            _log.warning("checkpoint_failed", segment=self._log.segment, error=error)
        finally:
            self._checkpointing = None

    async def _for_each(self, items: Iterable[Any], work: Callable[[Any], Coroutine[Any, Any, Any]]) -> None:
        """Call `work` for each: some at a time, so that others go on, and as many as may be on the way to the store."""
        all_items, running = list(items), list[asyncio.Task[Any]]()
        try:
            for start in range(0, len(all_items), AT_ONCE):
                running += [asyncio.create_task(work(each)) for each in all_items[start : start + AT_ONCE]]
                await self._clock.sleep(0)
                if self._log.pending_bytes >= FULL_BYTES:
                    await _all_done(running)
                    running.clear()
            await _all_done(running)
        finally:
            for task in running:
                task.cancel()
            running.clear()


async def _all_done(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Wait for all, also those of groups that are deleted meanwhile. Raises the first error of another kind."""
    try:
        raise_first(await asyncio.gather(*tasks, return_exceptions=True), but=NotFound)
    finally:
        del tasks


def _has_failed(task: "asyncio.Task[None]") -> bool:
    return task.cancelled() or task.exception() is not None
