"""The loops of `bench.harness.client_loops` with confluent-kafka, Kafka's Python client, with acks=all.

It runs as a process of its own, with the packages of `bench.peers.python_packages` in its path.
"""

from collections.abc import Callable, Iterator, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from bench.harness.client_loops import LOOK_EVERY, ClientLoops, main

_TOGETHER = 1_000
"""Messages that a consumer asks for at a time: it is faster so than with `poll`."""
_WAIT_SECONDS = 30.0


class ConfluentLoops(ClientLoops):
    """The client with its defaults, but for acks, and no time to linger for what is waited for."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address, topic)
        self._errors: list[KafkaError] = []
        self._single = self._producer({"linger.ms": 0})

    def send(self, values: Sequence[bytes], keys: Sequence[bytes], go_on: Callable[[], bool]) -> int:
        """Only failures are reported, which is the least work that still tells them."""
        producer = self._producer({"delivery.report.only.error": True})
        sent, last = 0, len(values)
        while go_on():
            for number in range(sent, sent + LOOK_EVERY):
                while True:
                    try:
                        producer.produce(self.topic, values[number % last], keys[number % last], on_delivery=self._note)
                        break
                    except BufferError:
                        # Its queue is full. This waits until there is a report, or for a moment.
                        producer.poll(0.001)
            producer.poll(0)
            sent += LOOK_EVERY
        self._flush(producer)
        return sent

    def read(self, messages: int) -> int:
        """Over all partitions."""
        consumer, size_bytes, count = self._consumer(), 0, 0
        while count < messages:
            came = consumer.consume(_TOGETHER, _WAIT_SECONDS)
            if not came:
                raise TimeoutError(f"{count} of {messages} messages came")
            for message in came:
                size_bytes += len(message.value() or b"")
            count += len(came)
        consumer.close()
        return size_bytes

    def publish(self, value: bytes) -> None:
        """One message, which does not wait for others."""
        self._single.produce(self.topic, value, on_delivery=self._note)
        self._flush(self._single)

    def values(self) -> Iterator[bytes]:
        """From the beginning on, without end."""
        consumer = self._consumer()
        while True:
            message = consumer.poll(_WAIT_SECONDS)
            if message is None:
                raise TimeoutError("no message came")
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            yield message.value() or b""

    def close(self) -> None:
        """Nothing waits: all was flushed, and consumers of a loop end with the process."""

    def _producer(self, settings: dict[str, object]) -> Producer:
        return Producer({"bootstrap.servers": self.address, "acks": "all", **settings})

    def _consumer(self) -> Consumer:
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "bench", "enable.auto.commit": False})
        partitions = consumer.list_topics(self.topic, _WAIT_SECONDS).topics[self.topic].partitions
        consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return consumer

    def _flush(self, producer: Producer) -> None:
        if left := producer.flush(_WAIT_SECONDS):
            raise TimeoutError(f"{left} messages were not acknowledged")
        if self._errors:
            raise RuntimeError(f"{len(self._errors)} messages failed: {self._errors[0]}")

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)


if __name__ == "__main__":
    main(ConfluentLoops)
