"""Histories of a log that does everything right, made up at random: requests, retries, transitions, readers."""

import random
from dataclasses import dataclass, field

from tests.cluster.checker.history import (
    REACHED,
    Attempt,
    Found,
    History,
    Outcome,
    Position,
    Reader,
    Request,
    Sent,
    Visit,
)

URLS = ("http://b0", "http://b1", "http://b2")


@dataclass
class SimulatedTopic:
    """A log of segments; `heads` are the open ones, by key range, `before` each one's predecessor."""

    name: str
    log: dict[int, list[Sent]] = field(default_factory=lambda: {0: [], 1: []})
    heads: list[int] = field(default_factory=lambda: [0, 1])
    before: dict[int, int] = field(default_factory=dict)

    def roll(self, index: int) -> None:
        """Seal one open segment and open its successor."""
        successor = max(self.log) + 1
        self.before[successor] = self.heads[index]
        self.log[successor] = []
        self.heads[index] = successor

    def append(self, messages: tuple[Sent, ...]) -> tuple[Position, ...]:
        """Store messages, each in the segment of its key; the positions an owner would tell."""
        counts: dict[int, tuple[int, int]] = {}
        for message in messages:
            segment = self.heads[sum(message.key.encode()) % len(self.heads)]
            base, count = counts.get(segment, (len(self.log[segment]), 0))
            counts[segment] = (base, count + 1)
            self.log[segment].append(message)
        return tuple((segment, base, count) for segment, (base, count) in counts.items())

    def next_message(self, following: dict[int, int], chance: random.Random) -> tuple[int, int] | None:
        """Where a reader that got so far may read on: in a segment whose predecessor it has drained."""
        ready = [
            segment
            for segment, messages in self.log.items()
            if following.get(segment, 0) < len(messages) and self._drained(self.before.get(segment), following)
        ]
        if not ready:
            return None
        segment = chance.choice(ready)
        return segment, following.get(segment, 0)

    def _drained(self, segment: int | None, following: dict[int, int]) -> bool:
        if segment is None:
            return True
        return following.get(segment, 0) >= len(self.log[segment]) and self._drained(
            self.before.get(segment), following
        )


class SimulatedReader:
    """A consumer with markers: it goes on where it was, or rewinds."""

    def __init__(self, topic: SimulatedTopic, name: str, kind: str, now_seconds: float, *, latest: bool) -> None:
        begun = {s: len(topic.log[s]) for s in topic.heads} if latest else {}
        # What a reader that starts at the end never reads counts as read: segments that were sealed before.
        self._skipped = {s: len(m) for s, m in topic.log.items()} if latest else {}
        self._topic, self._following, self._count = topic, begun | self._skipped, 0
        self._markers = [(0, dict(self._following))]
        self._marker = self._markers[0]
        start = "latest" if latest else "earliest"
        self.record = Reader(name, topic.name, kind, start, begun if latest else None, now_seconds)  # type: ignore[arg-type]

    def visit(self, chance: random.Random, now_seconds: float, most: int | None) -> None:
        """Read on for up to `most` messages at some broker, from the newest marker or an older one."""
        if most is not None and self.record.kind != "final" and chance.random() < 0.2:
            self._marker = chance.choice(self._markers)
        behind, following = self._marker
        following = dict(following)
        visit = Visit(chance.choice(URLS), behind, now_seconds, now_seconds)
        self.record.visits.append(visit)
        while most is None or len(visit.found) < most:
            position = self._topic.next_message(following, chance)
            if position is None:
                visit.end = REACHED
                break
            segment, offset = position
            sent = self._topic.log[segment][offset]
            visit.found.append(Found(segment, offset, sent.key.encode(), sent.value, now_seconds))
            following[segment] = offset + 1
            self._count += 1
            self._marker = (self._count, dict(following))
            self._markers.append(self._marker)


class Simulation:
    """A load of random steps; `run` gives its history."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._now_seconds, self._sequence = chance, 0.0, 0
        self._topics = [SimulatedTopic(f"topic-{n}") for n in range(chance.randint(1, 2))]
        self._numbers: dict[str, int] = {}
        self._readers: list[SimulatedReader] = []
        self.history = History(began="simulated")

    def run(self, steps: int = 60) -> History:
        """Publish, read and roll at random, then read everything to its end."""
        for topic in self._topics:
            self._join(topic, latest=False)
            self._publish(topic, "acknowledged")
            self._publish(topic, "acknowledged")
        for _ in range(steps):
            self._step(self._chance.choice(self._topics))
        for reader in self._readers:
            reader.visit(self._chance, self._tick(), None)
            reader.record.finished = True
        for topic in self._topics:
            for number in range(2):
                final = SimulatedReader(topic, f"final {number}", "final", self._tick(), latest=False)
                final.visit(self._chance, self._tick(), None)
                final.record.finished = True
                self.history.readers.append(final.record)
            self.history.predecessors[topic.name] = {segment: (each,) for segment, each in topic.before.items()}
        return self.history

    def _tick(self) -> float:
        self._now_seconds += 1.0
        return self._now_seconds

    def _step(self, topic: SimulatedTopic) -> None:
        what = self._chance.random()
        if what < 0.5:
            self._publish(topic, self._chance.choice(("acknowledged", "acknowledged", "unknown", "failed")))
        elif what < 0.85:
            self._chance.choice(self._readers).visit(self._chance, self._tick(), self._chance.randint(1, 5))
        elif what < 0.95:
            topic.roll(self._chance.randrange(len(topic.heads)))
        else:
            self._join(topic, latest=self._chance.random() < 0.5)

    def _join(self, topic: SimulatedTopic, *, latest: bool) -> None:
        kind = self._chance.choice(("stream", "browse"))
        reader = SimulatedReader(topic, f"reader-{len(self._readers)}", kind, self._tick(), latest=latest)
        self._readers.append(reader)
        self.history.readers.append(reader.record)

    def _publish(self, topic: SimulatedTopic, outcome: Outcome) -> None:
        """One request; an identified one that is acknowledged may have been tried before, and be repeated."""
        identified = self._chance.random() < 0.5
        producer = f"{topic.name}-{'known' if identified else 'plain'}"
        self._sequence += 1
        request = Request(producer, topic.name, self._take(producer), sequence=self._sequence if identified else None)
        positions: tuple[Position, ...] = ()
        if outcome == "acknowledged" or (outcome == "unknown" and self._chance.random() < 0.5):
            positions = topic.append(request.messages)
        if identified and outcome == "acknowledged" and self._chance.random() < 0.5:
            request.attempts.append(self._attempt(self._chance.choice(("unknown", "failed"))))
        request.attempts.append(self._attempt(outcome, positions))
        if identified and outcome == "acknowledged" and self._chance.random() < 0.5:
            request.attempts.append(self._attempt(outcome, positions))
        self.history.requests.append(request)

    def _attempt(self, outcome: Outcome, positions: tuple[Position, ...] = ()) -> Attempt:
        told = positions if outcome == "acknowledged" else ()
        return Attempt(self._chance.choice(URLS), self._tick(), self._tick(), outcome, told)

    def _take(self, producer: str) -> tuple[Sent, ...]:
        messages = []
        for _ in range(self._chance.randint(1, 4)):
            key = f"{producer}.{self._chance.randrange(4)}"
            number = self._numbers.get(key, 0)
            self._numbers[key] = number + 1
            messages.append(Sent(key, number))
        return tuple(messages)
