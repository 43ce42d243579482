"""A subscription as a member of a stream group. The broker keeps the member's session, and reads its segments."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any, TypeVar

from filer.errors import BraidError, InvalidInput, UnreadableObject
from mq.base.end_tasks import end_tasks
from mq.base.errors import OwnerSilent, ReadsFull
from mq.forms.arrow_stream import arrow_page
from mq.forms.group_bodies import HeartbeatBody, Held, JoinBody, LeaveBody, LetGoBody
from mq.forms.json_form import checked_body
from mq.forms.render import json_page
from mq.forms.rendering import copied, rendered
from mq.http.routes import SOCKET
from mq.http.sockets.group_calls import pause_after, problem_document
from mq.http.sockets.requests import Id
from mq.http.sockets.subscription import (
    IDLE_SECONDS,
    PAGE_BYTES,
    PAGE_ROWS,
    Outlet,
    SubscribeBody,
    Subscription,
)
from mq.service.groups.answers import Document
from mq.service.groups.group_service import GroupService
from mq.service.groups.operations import HEARTBEAT, JOIN, LEAVE, Operation
from mq.topic.topic_view import TopicView

LEAVE_SECONDS = 5.0
Q = TypeVar("Q")


@dataclass(slots=True)
class _Held:
    """A segment that the member has under that epoch. Its messages up to `position` are delivered."""

    segment: int
    epoch: int
    position: int

    @property
    def name(self) -> tuple[int, int]:
        """The name that distinguishes it from the same segment at another time."""
        return self.segment, self.epoch


class MemberDelivery(Subscription):
    """Segments come and go. A segment to let go gets no more messages, and goes when the client says so."""

    def __init__(
        self, outlet: Outlet, id_: Id, topic: str, asked: SubscribeBody, service: GroupService, consumer: str
    ) -> None:
        super().__init__(outlet, id_, asked.credit)
        assert asked.group is not None
        self.group: str = asked.group
        self.member_id = asked.member_id or consumer
        self._topic, self._asked, self._service = topic, asked, service
        self._view: TopicView
        self._epoch = 0
        self._beat_seconds = 0.0
        self._held: dict[tuple[int, int], _Held] = {}
        self._to_release: set[tuple[int, int]] = set()
        self._let_go: set[tuple[int, int]] = set()
        # Set when the next heartbeat, or the next look at the segments, has work to do.
        self._beat, self._look = asyncio.Event(), asyncio.Event()

    async def start(self) -> dict[str, Any]:
        """Join the group. Creates it if it does not exist."""
        self._view = await self._broker.topics.view(self._topic)
        joining = asyncio.create_task(self._ask(JOIN, JoinBody(member_id=self.member_id)), name="join of a member")
        try:
            told = await asyncio.shield(joining)
        except asyncio.CancelledError:
            await self._leave_after(joining)
            raise
        finally:
            del joining  # see `end_tasks`
        self._epoch, self._beat_seconds = told["member_epoch"], told["heartbeat_seconds"]
        self._take(told)
        return {"group": self.group, "member_id": self.member_id, "member_epoch": self._epoch, **self._assignment()}

    async def run(self) -> dict[str, Any]:
        """Deliver and keep the session up, until it is over or the topic is gone."""
        beating = asyncio.create_task(self._keep_session(), name="session of a member")
        delivering = asyncio.create_task(self._deliver(), name="messages of a member")
        try:
            await asyncio.wait([beating, delivering], return_when=asyncio.FIRST_COMPLETED)
            return (beating if beating.done() else delivering).result()
        finally:
            await end_tasks((beating, delivering))
            del beating, delivering

    async def release(self) -> None:
        """Leave the group: others get its segments at once. If that fails they have to wait for its session to end."""
        with contextlib.suppress(BraidError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                body = LeaveBody(member_id=self.member_id, member_epoch=self._epoch)
                with self._broker.read_budget.lease() as lease:
                    await self._service.ask(LEAVE, self._topic, self.group, body, lease)
                    lease.close()

    async def _leave_after(self, joining: "asyncio.Task[dict[str, Any]]") -> None:
        """Leave after a join that no client waits for any more: it makes a member all the same.

        Stopped before it is answered, others have to wait for its session to end.
        """
        await asyncio.wait([joining], timeout=LEAVE_SECONDS)
        joining.cancel()
        await asyncio.wait([joining])
        if not joining.cancelled() and joining.exception() is None:
            self._epoch = joining.result()["member_epoch"]
            await self.release()

    def let_go(self, named: Any) -> None:
        """Let go of segments. The client is done with them, and has committed its work. Raises `InvalidInput`."""
        if not isinstance(named, list) or not all(isinstance(each, dict) for each in named):
            raise InvalidInput('let_go is a list of segments: [{"segment": 0, "epoch": 1}]')
        found = {(each.segment, each.epoch) for each in checked_body({"let_go": named}, LetGoBody).let_go}
        if unknown := found - self._held.keys() - self._to_release:
            segment, epoch = min(unknown)
            raise InvalidInput(f"let_go: this member has no segment {segment} under epoch {epoch}")
        for name in found:
            self._held.pop(name, None)
        self._let_go |= found
        self._beat.set()

    # -- the session -------------------------------------------------------------------------------------------------

    async def _keep_session(self) -> dict[str, Any]:
        failed = 0
        while True:
            try:
                await self._hear()
                failed = 0
            except BraidError as error:
                end = self._ended(error)
                if not end["problem"]["retryable"]:
                    return end
                failed += 1
                await pause_after(self._broker.clock, failed)

    async def _hear(self) -> None:
        """Send a heartbeat, which waits for another assignment, or until the client has let a segment go."""
        self._beat.clear()
        released = sorted(self._let_go)
        wait_seconds = 0.0 if released else self._beat_seconds
        if self._to_release - self._let_go:
            # The heartbeat would be answered at once: the coordinator repeats which segments to let go.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_seconds):
                    await self._beat.wait()
            released, wait_seconds = sorted(self._let_go), 0.0
        beat = HeartbeatBody(
            member_id=self.member_id,
            member_epoch=self._epoch,
            segments=[Held(segment=segment, epoch=epoch) for segment, epoch in self._held],
            released=[Held(segment=segment, epoch=epoch) for segment, epoch in released],
            wait=wait_seconds,
        )
        asking = asyncio.ensure_future(self._ask(HEARTBEAT, beat))
        changed = asyncio.ensure_future(self._beat.wait())
        try:
            await asyncio.wait([asking, changed], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return  # the next one names the segments that were let go
            told = asking.result()
        finally:
            await end_tasks((asking, changed))
            del asking, changed
        self._let_go -= set(released)
        if self._take(told):
            self.tell(self._assignment())

    def _take(self, told: dict[str, Any]) -> bool:
        """Take the coordinator's assignment. Returns whether it differs from the one before."""
        assigned = {(each["segment"], each["epoch"]): each["position"] for each in told["segments"]}
        releasing = {(each["segment"], each["epoch"]) for each in told["release"]}
        before = (set(self._held), set(self._to_release))
        # An answer that was under way may still name a segment that was let go.
        self._held = {
            name: self._held.get(name, _Held(*name, position))
            for name, position in assigned.items()
            if name not in self._let_go and name not in releasing
        }
        self._to_release = releasing - self._let_go
        self._look.set()
        return before != (set(self._held), self._to_release)

    def _assignment(self) -> dict[str, Any]:
        return {
            "segments": [
                {"segment": each.segment, "epoch": each.epoch, "position": each.position}
                for each in self._held.values()
            ],
            "release": [{"segment": segment, "epoch": epoch} for segment, epoch in sorted(self._to_release)],
        }

    # -- messages ----------------------------------------------------------------------------------------------------

    async def _deliver(self) -> dict[str, Any]:
        while not self._view.state.deleted:
            await self.credit.some()
            self._look.clear()
            news = self._view.reads.news()
            try:
                found = [await self._deliver_of(held) for held in list(self._held.values())]
            except (OwnerSilent, ReadsFull):
                found = []
            except BraidError as error:
                return self._ended(error)
            if any(found):
                continue
            self._view.reads.follow({each.segment: each.position for each in self._held.values()})
            news.add_done_callback(self._has_news)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._look.wait()
        return {"end": "deleted"}

    def _has_news(self, _: "asyncio.Future[None]") -> None:
        self._look.set()

    async def _deliver_of(self, held: _Held) -> bool:
        """Deliver the next messages of a segment. Returns whether there were any."""
        if not self.credit.left or self._held.get(held.name) is not held:
            return False
        broker, state = self._broker, self._view.shown
        await broker.turns.streams.wait()
        lease = broker.read_budget.lease()
        lease.turns = broker.turns.streams
        with lease:
            reader = broker.reader_of(self._view, streaming=True, room=lease)
            rows = min(self.credit.left, PAGE_ROWS)
            async with broker.reads.cut_off(grace_seconds=0.0):
                run = await reader.read_segment(held.segment, held.position, max_rows=rows, max_bytes=PAGE_BYTES)
            count, moved = run.table.num_rows, run.end > held.position
            about = {"segment": held.segment, "epoch": held.epoch, "position": run.end}
            if self._held.get(held.name) is not held:
                lease.close()
                return False  # the segment was taken away during the read
            if not count:
                lease.close()
                held.position = run.end
                if moved:
                    self.tell({**about, "messages": []})
                return moved
            if self._asked.format == "arrow":
                parts = await copied(arrow_page(state, [run], about), count, lease)
            else:
                parts = await rendered(json_page(state, [run], about), count, lease)
            lease.keep(sum(map(len, parts)))
            self._view.reads.count_read(held.segment, count, sum(map(len, parts)))
            held.position = run.end
            if self._asked.format == "arrow":
                await self.deliver_arrow(parts, count, about)
            else:
                await self.deliver(parts, count)
            lease.close()
        return True

    def _ended(self, error: BraidError) -> dict[str, Any]:
        problem = problem_document(error, SOCKET.of(self._topic).path)
        return {"end": "unreadable" if isinstance(error, UnreadableObject) else "refused", "problem": problem}

    async def _ask(self, operation: Operation[Q, Document], body: Q) -> dict[str, Any]:
        with self._broker.read_budget.lease() as lease:
            answer = await self._service.ask(operation, self._topic, self.group, body, lease)
            lease.close()
        return answer.content()
