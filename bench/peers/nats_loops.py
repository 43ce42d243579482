"""The loops of `bench.harness.client_loops` with nats-py, NATS' Python client, and JetStream.

It runs as a process of its own, with the packages of `bench.peers.python_packages` in its path. A topic is a stream of
subjects: what Kafka and we have keys for is a subject there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import nats

from bench.harness.client_loops import LOOK_EVERY, ClientLoops, main

_WAIT_SECONDS = 30.0


class NatsLoops(ClientLoops):
    """An asynchronous client, run to the end of each call."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address, topic)
        self._runner = asyncio.Runner()
        self._runner.run(self._connect())
        self._loop = self._runner.get_loop()

    async def _connect(self) -> None:
        self._connection = await nats.connect(self.address)
        self._stream = self._connection.jetstream(publish_async_max_pending=10_000)
        await self._stream.add_stream(name=self.topic, subjects=[f"{self.topic}.*"])

    def send(self, values: Sequence[bytes], keys: Sequence[bytes], go_on: Callable[[], bool]) -> int:
        """Each has a receipt, which the client makes in any case."""
        return self._loop.run_until_complete(self._send(values, keys, go_on))

    async def _send(self, values: Sequence[bytes], keys: Sequence[bytes], go_on: Callable[[], bool]) -> int:
        subjects = [f"{self.topic}.{key.decode()}" for key in keys]
        sent, last, before = 0, len(values), await self._stored()
        while go_on():
            for number in range(sent, sent + LOOK_EVERY):
                at = number % last
                await self._stream.publish_async(subjects[at], values[at], wait_stall=_WAIT_SECONDS)
            sent += LOOK_EVERY
        await self._stream.publish_async_completed()
        # Nobody looks at the receipts, so the stream tells whether it has all.
        if (stored := await self._stored() - before) != sent:
            raise RuntimeError(f"{sent} messages sent, {stored} stored")
        return sent

    async def _stored(self) -> int:
        return int((await self._stream.stream_info(self.topic)).state.messages)

    def read(self, messages: int) -> int:
        """By an ordered consumer, which needs no acks."""
        return self._loop.run_until_complete(self._read(messages))

    async def _read(self, messages: int) -> int:
        size_bytes = count = 0
        async for value in self._values():
            size_bytes, count = size_bytes + len(value), count + 1
            if count == messages:
                break
        return size_bytes

    def publish(self, value: bytes) -> None:
        """One message."""
        self._loop.run_until_complete(self._stream.publish(f"{self.topic}.0", value))

    def values(self) -> Iterator[bytes]:
        """From the beginning on, without end."""
        values = self._values()
        while True:
            yield self._loop.run_until_complete(anext(values))

    async def _values(self) -> AsyncIterator[bytes]:
        reader = await self._stream.subscribe(f"{self.topic}.*", ordered_consumer=True)
        while True:
            yield (await reader.next_msg(_WAIT_SECONDS)).data

    def close(self) -> None:
        """Close the connection."""
        self._loop.run_until_complete(self._connection.close())
        self._runner.close()


if __name__ == "__main__":
    main(NatsLoops)
