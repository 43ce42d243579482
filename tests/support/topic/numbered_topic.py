"""Topics of a few keys with numbered messages, and a check of what readers have read."""

from collections import defaultdict
from collections.abc import Iterable

import pyarrow as pa

from braidmq import Client

KEYS = [f"key-{number}" for number in range(23)]


class NumberedTopic:
    """Publishes in rounds: in each round every key gets its next number as a value."""

    def __init__(self, client: Client, topic: str, *, segments: int = 1, **config: object) -> None:
        self.client, self.topic = client, topic
        self.rounds = 0
        client.create_topic(topic, segments=segments, scaling={"enabled": False}, **config)

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self.rounds * len(KEYS)

    def publish(self, rounds: int = 10) -> None:
        """Publish more rounds in one request."""
        numbers = [str(number) for number in range(self.rounds, self.rounds + rounds) for _ in KEYS]
        self.client.publish_table(
            self.topic, pa.table({"key": KEYS * rounds, "value": numbers}), key="key", value="value"
        )
        self.rounds += rounds

    def split(self) -> None:
        """Split the first open segment in two."""
        self.client.split_segment(self.topic, self.open[0])

    def merge(self) -> None:
        """Merge the first two open segments."""
        self.client.merge_segments(self.topic, *self.open[:2])

    @property
    def open(self) -> list[int]:
        """Ids of the open segments by key range."""
        segments = [each for each in self.client.topic(self.topic).segments if each.state == "open"]
        return [each.segment for each in sorted(segments, key=lambda each: each.range)]

    def check(self, read: Iterable[tuple[bytes, bytes]]) -> None:
        """Check that all numbers of each key came once and in order. `read` are keys and values in reading order."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for key, value in read:
            numbers[key.decode()].append(int(value))
        assert numbers == {key: list(range(self.rounds)) for key in KEYS}
