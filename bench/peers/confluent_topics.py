"""Makes topics of Kafka, and publishes to each of them once, with confluent-kafka.

    python -m bench.peers.confluent_topics create|wait|publish ADDRESS TOPIC PARTITIONS COUNT

TOPIC may have a `{}` for the number of the topic. It runs as a process of its own, with the packages of
`bench.peers.python_packages` in its path, and tells how long it took as `bench.harness.counted_program` expects it.
`wait` ends once all topics have leaders.
"""

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import wait

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.harness.counted_program import BEGAN

_TOGETHER = 16
"""Requests that are sent without waiting for the answers of others."""
_VALUE = b"x" * 200
_WAIT_SECONDS = 60.0


def create(address: str, topics: Sequence[str], partitions: int) -> None:
    """A request for each topic."""
    admin = AdminClient({"bootstrap.servers": address})
    for first in range(0, len(topics), _TOGETHER):
        made = [
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic] for topic in topics[first : first + _TOGETHER]
        ]
        wait(made)
        for each in made:
            each.result()


def wait_for(address: str, topics: Sequence[str], _: int) -> None:
    """Ask again until the broker knows all of them, and their leaders."""
    until_seconds, known = time.monotonic() + _WAIT_SECONDS, 0
    while time.monotonic() < until_seconds:
        admin = AdminClient({"bootstrap.servers": address})
        listed = admin.list_topics(timeout=_WAIT_SECONDS).topics
        led = {name for name, topic in listed.items() if all(each.leader >= 0 for each in topic.partitions.values())}
        known = len(led & set(topics))
        if known == len(topics):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{known} of {len(topics)} topics have leaders")


def publish(address: str, topics: Sequence[str], _: int) -> None:
    """One message to each, without waiting for the answers of others."""
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    for topic in topics:
        producer.produce(topic, _VALUE, on_delivery=note)
        producer.poll(0)
    if (left := producer.flush(_WAIT_SECONDS)) or failed:
        raise RuntimeError(f"{left} messages were not acknowledged, {len(failed)} failed: {failed[:1]}")


def main() -> None:
    command, address, topic, partitions, count = sys.argv[1:]
    topics = [topic.format(number) for number in range(int(count))]
    print(BEGAN, flush=True)
    began_seconds = time.perf_counter()
    {"create": create, "wait": wait_for, "publish": publish}[command](address, topics, int(partitions))
    print(json.dumps({"messages": int(count), "seconds": time.perf_counter() - began_seconds}), flush=True)


if __name__ == "__main__":
    main()
