"""A publisher of numbered messages for a few keys, and a reader that checks that each comes once and in order."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import httpx
import orjson

WAIT_SECONDS = 0.5
NDJSON = {"content-type": "application/x-ndjson"}

QUICK_SCALING = {
    "target": {"messages": 20, "bytes": 1e9},
    "scaling": {
        "split": [{"times_target": 1, "for_seconds": 0.3}],
        "merge": {"times_target": 0.5, "for_seconds": 0.6},
        "cooldown_seconds": 0.3,
    },
}
"""A topic that this publisher floods, with windows in fractions of a second."""
REPORT_SECONDS = 0.05


class NumberedPublisher:
    """Publishes through brokers in turn, one request after the other, each with the next number of every key."""

    def __init__(self, clients: Sequence[httpx.AsyncClient], topic: str, *, keys: int = 40) -> None:
        self._clients, self._topic, self._keys = clients, topic, [f"key-{n}" for n in range(keys)]
        self.rounds = 0
        self._stopping = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Publish within the context. Raises the error of a failed publish."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._stopping = True
            await task

    async def _run(self) -> None:
        while not self._stopping:
            client = self._clients[self.rounds % len(self._clients)]
            lines = b"\n".join(orjson.dumps({"key": key, "value": str(self.rounds)}) for key in self._keys)
            answer = await client.post(f"/v1/topics/{self._topic}/messages", content=lines, headers=NDJSON)
            assert answer.status_code == 200, answer.text
            self.rounds += 1

    def check(self, reader: "NumberedReader") -> None:
        """Check that everything was read, once and in order."""
        assert reader.next_numbers == dict.fromkeys(self._keys, self.rounds)


class NumberedReader:
    """Reads the topic from its oldest message on. Fails at the first message that is not the next of its key."""

    def __init__(self, client: httpx.AsyncClient, topic: str) -> None:
        self._client, self._topic = client, topic
        self.next_numbers: Counter[str] = Counter()
        self._marker: str | None = None
        self._ending = False

    async def read(self) -> int:
        """Read a page, waiting for it if need be. Returns the number of messages."""
        params = {"limit": "10000", "wait": str(WAIT_SECONDS)} | ({"marker": self._marker} if self._marker else {})
        answer = await self._client.get(f"/v1/topics/{self._topic}/messages", params=params)
        page = answer.raise_for_status().json()
        for message in page["messages"]:
            assert int(message["value"]) == self.next_numbers[message["key"]], message
            self.next_numbers[message["key"]] += 1
        self._marker = page["marker"]
        return len(page["messages"])

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Read continuously within the context; at its end, read what is left."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self._ending = True
            await task

    async def _follow(self) -> None:
        while not self._ending:
            await self.read()
        while await self.read():
            pass
