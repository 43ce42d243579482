"""A subscription to a topic from a position on: as a stream over HTTP, with no more messages than the credit."""

import asyncio
from typing import Any

from filer.errors import UnreadableObject
from filer.topic.positions import Positions, to_marker
from mq.base.errors import Draining, PositionTooOld, ReadsFull
from mq.forms.arrow_stream import arrow_page
from mq.forms.render import json_page
from mq.forms.rendering import copied, rendered
from mq.http.sockets.requests import Id
from mq.http.sockets.subscription import IDLE_SECONDS, PAGE_BYTES, PAGE_ROWS, Outlet, SubscribeBody, Subscription
from mq.http.streaming.catching_up import catch_up
from mq.http.streaming.stream_end import end_of
from mq.service.start import check_positions, start_positions
from mq.topic.run import Run
from mq.topic.topic_view import TopicView


class TopicDelivery(Subscription):
    """`positions` are behind all that was delivered: a reader goes on there, however this ends."""

    def __init__(self, outlet: Outlet, id_: Id, topic: str, asked: SubscribeBody) -> None:
        super().__init__(outlet, id_, asked.credit)
        self._topic, self._asked = topic, asked
        self._view: TopicView
        self._positions: Positions = {}
        self._live: set[int] = set()
        self._now_seconds = self._broker.clock.monotonic_seconds
        self._told_seconds = self._now_seconds()

    async def start(self) -> dict[str, Any]:
        """Find where it begins."""
        self._view = await self._broker.topics.view(self._topic)
        reader = await self._broker.reader(self._topic, streaming=True)
        asked = self._asked
        self._positions = await start_positions(self._topic, reader, asked.marker, asked.from_, default="latest")
        return {"marker": self._marker}

    async def run(self) -> dict[str, Any]:
        """Deliver until the topic is deleted, or the next messages cannot be given."""
        try:
            while not self._view.state.deleted:
                await self.credit.some()
                news = self._view.reads.news()
                await self._broker.turns.streams.wait()
                try:
                    if await self._deliver_page():
                        continue
                except Draining:
                    break
                except ReadsFull:
                    # Other readers hold all the room. This one has waited for some, and tries again.
                    continue
                self._view.reads.follow(self._positions)
                await asyncio.wait([news], timeout=IDLE_SECONDS)
                # Needed also if there is news all the time, but only of other members of a topic group.
                if not news.done() or self._now_seconds() > self._told_seconds + IDLE_SECONDS:
                    self.tell({"marker": self._marker, "credit": self.credit.left})
                    self._told_seconds = self._now_seconds()
        except (PositionTooOld, UnreadableObject) as error:
            end = end_of(self._view, self._positions, error)
            return {**end.reason, "marker": end.marker}
        return self._ended()

    def stopped(self, reason: str) -> dict[str, Any]:
        """The end that the client gets when the subscription is stopped for that reason."""
        return {"end": reason, "marker": self._marker}

    def _ended(self) -> dict[str, Any]:
        end = end_of(self._view, self._positions, None)
        return {**end.reason, "marker": end.marker}

    @property
    def _marker(self) -> str:
        return to_marker(self._topic, self._positions)

    async def _deliver_page(self) -> bool:
        """Deliver the next messages, if there are any. Returns whether to look for more at once."""
        view, broker = self._view, self._broker
        positions = catch_up(view.runtime, self._positions, self._live)
        lease = broker.read_budget.lease()
        lease.turns = broker.turns.streams
        with lease:
            reader = await broker.reader(self._topic, streaming=True, room=lease)
            # A page of small files may take long. It can be read again from the same marker, at another broker.
            async with broker.reads.cut_off(grace_seconds=0.0):
                await check_positions(self._topic, reader, positions)
                rows = min(self.credit.left, PAGE_ROWS)
                runs, reached = await reader.read(positions, max_rows=rows, max_bytes=PAGE_BYTES)
            if not runs:
                lease.close()
                self._positions = reached
                return reader.may_go_on
            about = {"marker": to_marker(self._topic, reached)}
            count = sum(run.table.num_rows for run in runs)
            if self._asked.format == "arrow":
                parts = await copied(arrow_page(view.shown, runs, about), count, lease)
            else:
                parts = await rendered(json_page(view.shown, runs, about), count, lease)
            self._count(runs, sum(map(len, parts)), count)
            runs.clear()
            lease.keep(sum(map(len, parts)))
            # From here on the client may have them: it goes on behind them, wherever this ends.
            self._positions, self._told_seconds = reached, self._now_seconds()
            if self._asked.format == "arrow":
                await self.deliver_arrow(parts, count, about)
            else:
                await self.deliver(parts, count)
            lease.close()
        if reader.unreadable is not None:
            raise reader.unreadable
        return True

    def _count(self, runs: list[Run], size_bytes: int, messages: int) -> None:
        for run in runs:
            self._view.reads.count_read(run.segment, run.table.num_rows, size_bytes * run.table.num_rows // messages)
