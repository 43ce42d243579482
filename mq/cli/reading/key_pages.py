"""The messages of one key as pages. Only the segments that hold the key's slot are read."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from braidmq import AsyncClient, BraidMQError, SegmentPage
from braidmq.models import Segment
from filer.clock import Clock
from filer.slots import slot_of
from mq.cli.failures import CommandFailed
from mq.cli.reading.lineage import chain_of

_WAIT_SECONDS = 25.0
_PAUSE_SECONDS = 0.5
# As long as a transition may take. Every sealed segment gets successors.
_PAUSES = 120
PAGE_ROWS = 10_000


class KeyPages:
    """The messages of a key from an offset of a segment on.

    The segments that hold the key follow one another: the next one is read when the one before is sealed and read. With
    `follow` it waits for more at the end, also while brokers are away if it is `patient`.
    """

    def __init__(
        self,
        client: AsyncClient,
        clock: Clock,
        topic: str,
        key: bytes,
        at: tuple[int, int],
        *,
        follow: bool,
        patient: bool = False,
    ) -> None:
        self._client, self._clock, self._topic, self._key = client, clock, topic, key
        self._segment, self._offset = at
        self._follow, self._patient = follow, patient

    @property
    def positions(self) -> Mapping[int, int]:
        """As `Pages`, for the one segment that is being read."""
        return {self._segment: self._offset}

    async def next_page(self) -> pa.Table | None:
        """As `Pages`. Raises `PositionExpired` if retention has overtaken the reading."""
        page = await self._page()
        before, self._offset = self._offset, page.next_offset
        if page.table.num_rows or page.next_offset > before:
            return of_key(page.table, self._key)
        if page.end_offset is not None:
            self._segment, self._offset = await self._following()
            return page.table
        return page.table if self._follow else None

    def ending(self) -> "KeyPages":
        """As `Pages`."""
        return KeyPages(self._client, self._clock, self._topic, self._key, (self._segment, self._offset), follow=False)

    async def _page(self) -> SegmentPage:
        wait_seconds = _WAIT_SECONDS if self._follow else 0.0
        while True:
            try:
                return await self._client.segment_page(
                    self._topic, self._segment, offset=self._offset, limit=PAGE_ROWS, wait_seconds=wait_seconds
                )
            except BraidMQError as error:
                if not (error.retryable and self._follow and self._patient):
                    raise
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _following(self) -> tuple[int, int]:
        """The start of the segment that follows the one that is read."""
        for _ in range(_PAUSES):
            chain = chain_of((await self._client.topic(self._topic)).segments, slot_of(self._key))
            following = [each for each in chain if each.segment > self._segment]
            if following:
                return following[0].segment, following[0].start_offset
            await self._clock.sleep(_PAUSE_SECONDS)
        raise CommandFailed(f"no segment follows segment {self._segment} of topic {self._topic!r}, which is sealed")


def key_position(segments: Sequence[Segment], key: bytes, positions: Mapping[int, int]) -> tuple[int, int]:
    """The segment and the offset at which a reading of the key goes on from positions of its whole topic.

    The positions may name a segment that is read and its successor: then the successor counts.
    """
    chain = [each.segment for each in chain_of(segments, slot_of(key)) if each.segment in positions]
    if not chain:
        raise CommandFailed("the segments of the topic have just changed: run this again")
    return chain[-1], positions[chain[-1]]


def of_key(table: pa.Table, key: bytes) -> pa.Table:
    """The rows with this key."""
    import pyarrow.compute as pc  # here: other readings do not need it

    return table.filter(pc.equal(table["key"].cast(pa.binary()), pa.scalar(key, pa.binary())))
