"""The open segments of a topic that other brokers own: forwards for publishing, tails for reading."""

import asyncio
from collections.abc import Callable

from filer import tracing
from filer.clock import Clock
from filer.errors import BraidError, UnreadableObject
from filer.segment.segment_log import SegmentRef
from filer.topic.topic_state import Segment
from mq.base.errors import OwnerSilent, PeerSilent, PeerUnreachable
from mq.forwarding.remote_segment import RemoteSegment
from mq.forwarding.remote_tail import RemoteTail
from mq.limits.front_store import FrontStore, Tail
from mq.peers.answer_forms import TailPage
from mq.peers.peers import Peers


class RemoteSegments:
    """Forwards and tails by segment id.

    `on_moved` is called when a forward has failed, `on_news` when a tail has grown or ended. `on_forwarded` gets the
    seconds that a call to an owner took. `url_of` returns the address of a live broker.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        peers: Peers,
        url_of: Callable[[str], str | None],
        front_store: FrontStore,
        on_moved: Callable[[], None],
        on_news: Callable[[], None],
        on_forwarded: Callable[[float], None],
    ) -> None:
        self._clock, self._peers, self._url_of, self._front_store = clock, peers, url_of, front_store
        self._on_moved, self._on_news, self._on_forwarded = on_moved, on_news, on_forwarded
        self._forwards: dict[int, RemoteSegment] = {}
        self._tails: dict[int, RemoteTail] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def forward(self, ref: SegmentRef, segment: Segment, version: int) -> RemoteSegment:
        """Return the `RemoteSegment` that forwards messages of the segment; a new one if the last one has failed."""
        known = self._forwards.get(segment.id)
        if known is None or not known.is_open:
            url = self._url_of(segment.owner)
            known = RemoteSegment(
                self._peers,
                self._clock,
                ref,
                url=url,
                version=version,
                on_moved=self._on_moved,
                on_unstored=self._front_store.grow,
                on_forwarded=self._on_forwarded,
            )
            self._forwards[segment.id] = known
        return known

    def count_abandoned(self) -> None:
        """Count the messages on their way to owners with publishers that have given up waiting."""
        for forward in self._forwards.values():
            forward.count_abandoned()

    def tail(self, segment_id: int) -> Tail | None:
        """Return the segment's newest messages, if a reader of this broker follows them."""
        remote = self._tails.get(segment_id)
        return None if remote is None or remote.ended else remote.tail

    def follow(self, ref: SegmentRef, segment: Segment, offset: int) -> None:
        """Fetch the segment's messages from `offset` on as they are stored."""
        remote = self._tails.get(segment.id)
        if remote is None or remote.ended or not remote.tail.start <= offset <= remote.tail.end:
            if remote is not None:
                remote.stop()
            remote = self._tails[segment.id] = RemoteTail(
                self._peers,
                self._clock,
                self._front_store,
                ref,
                url=lambda: self._url_of(segment.owner),
                offset=offset,
                on_news=self._on_news,
            )
        remote.keep_alive()

    async def ask(self, ref: SegmentRef, segment: Segment, offset: int, *, max_rows: int, max_bytes: int) -> TailPage:
        """Return the messages that the segment's owner has now, from `offset` on.

        Raises `OwnerSilent`, and `DataMissing` or `CorruptFile` as the owner does.
        """
        url = self._url_of(segment.owner)
        try:
            with tracing.current().child("fetch", kind="client") as span:
                span.note(segment=ref.segment, offset=offset, broker=url or "")
                return await self._peers.tail(
                    url, ref.topic, ref.segment, offset, max_rows=max_rows, max_bytes=max_bytes, wait_seconds=0
                )
        except UnreadableObject:
            raise
        except BraidError as error:
            owner = f"broker {segment.owner}, which owns segment {ref.segment} of topic {ref.topic!r}"
            silent = isinstance(error, (PeerUnreachable, PeerSilent))
            raise OwnerSilent(f"{owner}, {'does not answer' if silent else f'cannot tell: {error}'}") from error

    def forget(self, segment_id: int) -> None:
        """The segment is sealed or gone. Messages on their way to its owner have a limited time to be answered."""
        forward = self._forwards.pop(segment_id, None)
        if forward is not None:
            task = asyncio.create_task(forward.leave(), name=f"leave segment {segment_id}")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        remote = self._tails.pop(segment_id, None)
        if remote is not None:
            remote.stop()

    async def close(self) -> None:
        """End all forwards and tails."""
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await asyncio.gather(*(forward.close() for forward in self._forwards.values()))
        await asyncio.gather(*(tail.close() for tail in self._tails.values()))
