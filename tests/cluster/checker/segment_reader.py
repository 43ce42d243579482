"""A reader that goes for one place of one segment, at every broker, again and again."""

import asyncio
from collections.abc import Callable, Sequence

import httpx

from tests.cluster.checker.consumers import found_in
from tests.cluster.checker.gaps import gap_in
from tests.cluster.checker.history import GARBLED, Reader, Visit

ROWS = 200
PAUSE_SECONDS = 0.1
DETAIL_CHARS = 300


class SegmentReader:
    """Asks one broker after the other for the messages from an offset on, and records what it gets.

    It is not owed all of them: it reads a page at each visit, from the same offset.
    """

    def __init__(self, name: str, topic: str, segment: int, offset: int, now: Callable[[], float]) -> None:
        self._path, self._offset, self._now = f"/v1/topics/{topic}/segments/{segment}/messages", offset, now
        self.record = Reader(name, topic, "browse", "latest", {segment: offset}, joined_seconds=now())

    async def follow(self, client: httpx.AsyncClient, urls: Sequence[str]) -> None:
        """Visit all brokers in turn until cancelled. `urls` may change in the meantime."""
        while True:
            for url in list(urls):
                await self._visit(client, url)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _visit(self, client: httpx.AsyncClient, url: str) -> None:
        visit = Visit(url, 0, self._now())
        self.record.visits.append(visit)
        try:
            response = await client.get(url + self._path, params={"offset": self._offset, "limit": ROWS})
            if response.status_code == 200:
                visit.found += [found_in(message, self._now()) for message in response.json()["messages"]]
            else:
                visit.end = response.text[:DETAIL_CHARS]
                if (gap := gap_in(response.content)) is not None:
                    visit.told.append(gap)
        except httpx.TransportError as error:
            visit.end = repr(error)[:DETAIL_CHARS]
        except (ValueError, KeyError, TypeError, AttributeError):
            visit.end = GARBLED
        finally:
            visit.ended_seconds = self._now()
