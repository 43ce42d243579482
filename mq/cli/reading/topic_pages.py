"""The messages of a whole topic as pages that know their position."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from braidmq import AsyncClient
from braidmq.models import Segment
from filer.topic.positions import from_marker
from mq.cli.input.moments import Start


class Pages(Protocol):
    """A reading of a topic, page by page."""

    @property
    def positions(self) -> Mapping[int, int] | None:
        """The positions where the reading goes on, `{segment: offset}`; None before the first page."""
        ...

    async def next_page(self) -> pa.Table | None:
        """Return more rows, possibly none; None at the end of the topic, if the reading does not wait there."""
        ...

    def ending(self) -> "Pages":
        """The same reading from where it is, without a wait at the end of the topic."""
        ...


class TopicPages:
    """All messages from a start (default: the end of the topic if it follows, or else its beginning) or a marker."""

    def __init__(
        self, client: AsyncClient, topic: str, start: Start | None, marker: str | None, *, follow: bool
    ) -> None:
        self._client, self._topic, self._start = client, topic, start
        read = client.subscribe_tables if follow else client.browse_tables
        self._tables = read(topic, from_=start, marker=marker)

    @property
    def positions(self) -> Mapping[int, int] | None:
        """As `Pages`."""
        return None if self._tables.marker is None else from_marker(self._topic, self._tables.marker)

    async def next_page(self) -> pa.Table | None:
        """As `Pages`."""
        return await self._tables.next_table()

    def ending(self) -> "TopicPages":
        """As `Pages`."""
        marker = self._tables.marker
        start = (self._start or "latest") if marker is None else None
        return TopicPages(self._client, self._topic, start, marker, follow=False)


async def segments_with(
    client: AsyncClient, topic: str, ids: Iterable[int], known: Sequence[Segment] = ()
) -> Sequence[Segment]:
    """Return the segments of the topic: the known ones, if all of `ids` are among them."""
    return known if set(ids) <= {each.segment for each in known} else (await client.topic(topic)).segments
