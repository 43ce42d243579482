"""What a Python program does with a client, one message at a time: the same work for our client and for those of peers.

    python -m MODULE send|fill|read|single|publish|subscribe ADDRESS TOPIC SECONDS_OR_MESSAGES

Each client is a module with a class of its own, which `main` runs as a process. It tells what it counted as
`bench.harness.counted_program` expects it.
"""

import json
import os
import resource
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from bench.harness.counted_program import BEGAN

VALUE_BYTES, KEYS = 200, 1000
LOOK_EVERY = 256
"""Messages that are sent between two looks at the clock."""
WARM_UP_MESSAGES = 50
MESSAGES_PER_SECOND = 50
_SENT_BYTES = 24


class ClientLoops(ABC):
    """A client of one topic. Each method returns only when the messages are acknowledged, or read."""

    def __init__(self, address: str, topic: str) -> None:
        self.address, self.topic = address, topic

    @abstractmethod
    def send(self, values: Sequence[bytes], keys: Sequence[bytes], go_on: Callable[[], bool]) -> int:
        """Send a round of `LOOK_EVERY` messages in a loop as long as `go_on`; returns how many were acknowledged."""

    def fill(self, values: Sequence[bytes], keys: Sequence[bytes], messages: int) -> None:
        """Publish so many messages, a multiple of `LOOK_EVERY`, for `read`."""
        rounds = iter(range(messages // LOOK_EVERY))
        self.send(values, keys, lambda: next(rounds, None) is not None)

    @abstractmethod
    def read(self, messages: int) -> int:
        """Look at each of so many messages from the beginning on, one by one; returns how many bytes they have."""

    @abstractmethod
    def publish(self, value: bytes) -> None:
        """Publish one message, and wait until it is acknowledged."""

    @abstractmethod
    def values(self) -> Iterator[bytes]:
        """The values of all messages, as they come: without end."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held."""


def main(make: Callable[[str, str], ClientLoops]) -> None:
    """Run one of the loops, as the command line says."""
    command, address, topic, number = sys.argv[1:]
    loops = make(address, topic)
    commands = {"send": send, "fill": fill, "read": read, "single": single, "publish": publish, "subscribe": subscribe}
    try:
        commands[command](loops, float(number))
    finally:
        loops.close()


def send(loops: ClientLoops, seconds: float) -> None:
    """Publish in a loop. The first second does not count: it warms up."""
    values, keys = _messages()
    for counts, duration_seconds in ((False, 1.0), (True, seconds)):
        if counts:
            _say(BEGAN)
        began_seconds, had_seconds = time.perf_counter(), processor_seconds()
        count = loops.send(values, keys, _until(began_seconds + duration_seconds))
        if counts:
            _tell(count, time.perf_counter() - began_seconds, had_seconds)


def _until(seconds: float) -> Callable[[], bool]:
    return lambda: time.perf_counter() < seconds


def fill(loops: ClientLoops, messages: float) -> None:
    """Publish what `read` reads."""
    _say(BEGAN)
    began_seconds, had_seconds = time.perf_counter(), processor_seconds()
    loops.fill(*_messages(), int(messages))
    _tell(int(messages), time.perf_counter() - began_seconds, had_seconds)


def _messages() -> tuple[list[bytes], list[bytes]]:
    return [os.urandom(VALUE_BYTES) for _ in range(KEYS)], [b"%d" % number for number in range(KEYS)]


def read(loops: ClientLoops, messages: float) -> None:
    """Read in a loop."""
    _say(BEGAN)
    began_seconds, had_seconds = time.perf_counter(), processor_seconds()
    size_bytes = loops.read(int(messages))
    took_seconds = time.perf_counter() - began_seconds
    if size_bytes != messages * VALUE_BYTES:
        sys.exit(f"{size_bytes} bytes were read of {messages:.0f} messages")
    _tell(int(messages), took_seconds, had_seconds)


def _tell(messages: int, seconds: float, had_seconds: float) -> None:
    client_us = (processor_seconds() - had_seconds) / messages * 1e6
    _say(json.dumps({"messages": messages, "seconds": seconds, "client_us": client_us}))


def single(loops: ClientLoops, seconds: float) -> None:
    """Publish one message after the other, and tell how long each took."""
    value = os.urandom(VALUE_BYTES)
    for _ in range(WARM_UP_MESSAGES):
        loops.publish(value)
    _say(BEGAN)
    waits_ms: list[float] = []
    began_seconds = time.perf_counter()
    while (before_seconds := time.perf_counter()) < began_seconds + seconds:
        loops.publish(value)
        waits_ms.append((time.perf_counter() - before_seconds) * 1000)
    _tell_waits(waits_ms)


def publish(loops: ClientLoops, messages: float) -> None:
    """Publish at an even pace. Each value has the time at which it was sent: `subscribe` looks at it."""
    _say(BEGAN)
    began_seconds = time.perf_counter()
    for number in range(int(messages) + WARM_UP_MESSAGES):
        time.sleep(max(0.0, began_seconds + number / MESSAGES_PER_SECOND - time.perf_counter()))
        loops.publish(b"%0*d" % (_SENT_BYTES, time.perf_counter_ns()))
    _say(json.dumps({"messages": int(messages), "seconds": time.perf_counter() - began_seconds}))


def subscribe(loops: ClientLoops, messages: float) -> None:
    """Read what `publish` sends in another process of this machine, and tell how long each was on its way."""
    _say(BEGAN)
    delays_ms: list[float] = []
    for number, value in enumerate(loops.values()):
        now_ns = time.perf_counter_ns()
        if number >= WARM_UP_MESSAGES:
            delays_ms.append((now_ns - int(value)) / 1e6)
        if len(delays_ms) == messages:
            break
    _tell_waits(delays_ms)


def _tell_waits(waits_ms: Sequence[float]) -> None:
    p99_ms = statistics.quantiles(waits_ms, n=100)[98]
    waited = {"p50_ms": statistics.median(waits_ms), "p99_ms": p99_ms}
    _say(json.dumps({"messages": len(waits_ms), "seconds": sum(waits_ms) / 1000, **waited}))


def processor_seconds() -> float:
    """What this process has used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say(line: str) -> None:
    print(line, flush=True)
