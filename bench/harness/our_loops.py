"""The loops of `bench.harness.client_loops` with our own blocking client."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from bench.harness.client_loops import LOOK_EVERY, ClientLoops, main
from braidmq import Client


class OurLoops(ClientLoops):
    """Our client, as people use it: a producer, `browse`, `publish` and `subscribe`."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address, topic)
        self._client = Client(address)

    def send(self, values: Sequence[bytes], keys: Sequence[bytes], go_on: Callable[[], bool]) -> int:
        """Receipts are dropped: the end of `with` tells a failure."""
        sent, last = 0, len(values)
        with self._client.producer(self.topic) as producer:
            while go_on():
                for number in range(sent, sent + LOOK_EVERY):
                    producer.send(values[number % last], key=keys[number % last])
                sent += LOOK_EVERY
        return sent

    def fill(self, values: Sequence[bytes], keys: Sequence[bytes], messages: int) -> None:
        """In batches, which is sooner done."""
        last = len(values)
        columns = {
            "key": pa.array([keys[number % last] for number in range(messages)], pa.binary()),
            "value": pa.array([values[number % last] for number in range(messages)], pa.binary()),
        }
        self._client.publish_table(self.topic, pa.table(columns), key="key", value="value")

    def read(self, messages: int) -> int:
        """`browse` ends at the end of the topic."""
        return sum(len(message.value or b"") for message in self._client.browse(self.topic))

    def publish(self, value: bytes) -> None:
        """One message."""
        self._client.publish(self.topic, value)

    def values(self) -> Iterator[bytes]:
        """From the beginning on, without end."""
        for message in self._client.subscribe(self.topic, from_="earliest"):
            yield bytes(message.value or b"")

    def close(self) -> None:
        """Close the client."""
        self._client.close()


if __name__ == "__main__":
    main(OurLoops)
