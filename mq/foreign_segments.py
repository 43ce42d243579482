"""The open segments of a topic that other brokers own, as this broker sees them: where to send, where to read."""

import asyncio
from collections.abc import Callable

from filer.errors import BraidError
from filer.segment_log import SegmentRef
from filer.segment_writer import WriterState
from filer.topic_state import Segment
from mq.errors import OwnerSilent, PeerSilent, PeerUnreachable
from mq.front_store import Tail
from mq.parts import Parts
from mq.peers import TailPage
from mq.remote_segment import RemoteSegment
from mq.remote_tail import RemoteTail


class ForeignSegments:
    """Forwards and tails by segment. `on_moved` is called when a forward failed, `on_news` when a tail has grown."""

    def __init__(self, parts: Parts, *, on_moved: Callable[[], None], on_news: Callable[[], None]) -> None:
        self._parts, self._on_moved, self._on_news = parts, on_moved, on_news
        self._forwards: dict[int, RemoteSegment] = {}
        self._tails: dict[int, RemoteTail] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def forward(self, ref: SegmentRef, segment: Segment, version: int) -> RemoteSegment:
        """Where to send messages for it; a new one where the last has failed."""
        known = self._forwards.get(segment.id)
        if known is None or known.state is WriterState.STOPPED:
            url = self._parts.url_of(segment.owner)
            known = RemoteSegment(
                self._parts.peers, self._parts.clock, ref, url=url, version=version, on_moved=self._on_moved
            )
            self._forwards[segment.id] = known
        return known

    def tail(self, segment_id: int) -> Tail | None:
        """Its newest messages, where somebody follows them."""
        remote = self._tails.get(segment_id)
        return None if remote is None or remote.ended else remote.tail

    def follow(self, ref: SegmentRef, segment: Segment, offset: int) -> None:
        """Have its messages from `offset` on come here as they are stored."""
        remote = self._tails.get(segment.id)
        if remote is None or remote.ended or not remote.tail.start <= offset <= remote.tail.end:
            if remote is not None:
                remote.stop()
            remote = self._tails[segment.id] = RemoteTail(
                self._parts.peers,
                self._parts.clock,
                self._parts.front_store,
                ref,
                url=lambda: self._parts.url_of(segment.owner),
                offset=offset,
                on_news=self._on_news,
            )
        remote.want()

    async def ask(self, ref: SegmentRef, segment: Segment, offset: int, *, max_rows: int, max_bytes: int) -> TailPage:
        """What its owner has from `offset` on, this moment; raises `OwnerSilent`."""
        url = self._parts.url_of(segment.owner)
        try:
            return await self._parts.peers.tail(
                url, ref.topic, ref.segment, offset, max_rows=max_rows, max_bytes=max_bytes, wait_seconds=0
            )
        except BraidError as error:
            owner = f"broker {segment.owner}, which owns segment {ref.segment} of topic {ref.topic!r}"
            silent = isinstance(error, (PeerUnreachable, PeerSilent))
            raise OwnerSilent(f"{owner}, {'does not answer' if silent else f'cannot tell: {error}'}") from error

    def forget(self, segment_id: int) -> None:
        """The segment is sealed or gone. What is on its way to it has a while to be answered."""
        forward = self._forwards.pop(segment_id, None)
        if forward is not None:
            task = asyncio.create_task(forward.leave(), name=f"leave segment {segment_id}")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        remote = self._tails.pop(segment_id, None)
        if remote is not None:
            remote.stop()

    async def close(self) -> None:
        """End everything."""
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await asyncio.gather(*(forward.close() for forward in self._forwards.values()))
        await asyncio.gather(*(tail.close() for tail in self._tails.values()))
