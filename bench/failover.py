"""How long publishers wait when the owner of their segment is killed, and when it is drained."""

import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import httpx

from bench.harness.local_cluster import BenchCluster, local_cluster, wait_until

SEGMENTS = 6
TARGET_SESSIONS = 2.0
EARLY_TARGET_SECONDS = 3.0
DRAIN_TARGET_SECONDS = 2.0
_TOPIC = "failover"
_PAUSE_SECONDS = 0.01
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Variant:
    """How brokers are set: the session time-out, and whether refused connections lead to earlier failovers."""

    session_seconds: float
    early: bool

    @property
    def what(self) -> str:
        """In words."""
        return f"session {self.session_seconds:g} s, {'early' if self.early else 'not early'}"


VARIANTS = [Variant(session_seconds, early) for session_seconds in (4.0, 10.0) for early in (False, True)]
"""The shorter session, and the default of `mq serve`."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Per round, the longest time in seconds that any segment went without an acknowledgement.

    `lost`: among the segments whose owner ended; `others`: among all other segments.
    """

    what: str
    target_seconds: float
    lost: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    @property
    def median_seconds(self) -> float:
        """The median over all rounds, of the segments whose owner ended."""
        return statistics.median(self.lost)


def measure_failover(*, rounds: int, show_progress: Callable[[str], None]) -> Iterator[Wait]:
    """For each variant, kill an owner in each round, then the leader; in the end stop owners by SIGTERM."""
    for variant in VARIANTS:
        yield from _measure_variant(variant, rounds, show_progress)


def _measure_variant(variant: Variant, rounds: int, show_progress: Callable[[str], None]) -> Iterator[Wait]:
    session_seconds = variant.session_seconds
    killed = Wait(
        f"owner killed, {variant.what}", EARLY_TARGET_SECONDS if variant.early else TARGET_SESSIONS * session_seconds
    )
    leader_killed = Wait(f"leader killed, {variant.what}", TARGET_SESSIONS * session_seconds)
    drained = Wait(f"owner drained by SIGTERM, {variant.what}", DRAIN_TARGET_SECONDS)
    with local_cluster(
        session_timeout_seconds=session_seconds, refused_timeout_seconds=None if variant.early else 0.0
    ) as cluster:
        cluster.create_topic(_TOPIC, segments=SEGMENTS)
        for number in range(rounds):
            for wait, number_of_signal, leads in (
                (killed, signal.SIGKILL, False),
                (leader_killed, signal.SIGKILL, True),
                (drained, signal.SIGTERM, False),
            ):
                show_progress(f"{wait.what}, round {number + 1} of {rounds}")
                _end_one(cluster, number, number_of_signal, wait, leads=leads)
    yield from (killed, leader_killed, drained)


def _end_one(cluster: BenchCluster, number: int, number_of_signal: signal.Signals, wait: Wait, *, leads: bool) -> None:
    """End the leader, or one of the others, another one each time."""
    leader = cluster.leader()
    others = [name for name in cluster.brokers if name != leader]
    victim = cluster.brokers[leader if leads else others[number % len(others)]]
    witness = next(name for name in cluster.brokers if name != victim.name)
    wait_until(lambda: _is_balanced(cluster, witness), "every broker owns its share")
    segments = cluster.segments(_TOPIC, ask=witness)
    stop = threading.Event()
    probes = [(each, _Probe(cluster.brokers[witness].url, each.key, stop)) for each in segments]
    try:
        wait_until(lambda: all(probe.acknowledged for _, probe in probes), "all segments take messages")
        started = time.perf_counter()
        victim.send(number_of_signal)
        wait_until(lambda: not victim.running, f"{victim.name} has ended")
        gone = time.perf_counter()
        wait_until(lambda: all(probe.has_resumed(gone) for _, probe in probes), "all segments take messages again")
    finally:
        stop.set()
        for _, probe in probes:
            probe.join()
    wait.lost.append(max(probe.longest_wait(started) for each, probe in probes if each.owner == victim.name))
    wait.others.append(max(probe.longest_wait(started) for each, probe in probes if each.owner != victim.name))
    cluster.restart(victim)


def _is_balanced(cluster: BenchCluster, witness: str) -> bool:
    """Whether all brokers own equally many segments, and all report the same owners."""
    views = [cluster.segments(_TOPIC, ask=name) for name in cluster.brokers]
    owners = [each.owner for each in cluster.segments(_TOPIC, ask=witness)]
    share = SEGMENTS // len(cluster.brokers)
    return all(view == views[0] for view in views) and all(owners.count(name) == share for name in cluster.brokers)


class _Probe(threading.Thread):
    """Publishes one message after the other under one key, whatever the answers; records acknowledgements."""

    def __init__(self, url: str, key: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._url, self._key, self._stopping = f"{url}/v1/topics/{_TOPIC}/messages", key, stop
        # For each acknowledged message, when it was sent and when it was acknowledged.
        self.acknowledged: list[tuple[float, float]] = []
        self.start()

    def run(self) -> None:
        with httpx.Client(timeout=_ANSWER_SECONDS) as client:
            while not self._stopping.wait(_PAUSE_SECONDS):
                sent = time.perf_counter()
                answer = client.post(self._url, params={"key": self._key}, content=b"probe")
                if answer.status_code == 200:
                    self.acknowledged.append((sent, time.perf_counter()))

    def has_resumed(self, since: float) -> bool:
        """Whether a message sent after `since` has been acknowledged."""
        return bool(self.acknowledged) and self.acknowledged[-1][0] >= since

    def longest_wait(self, since: float) -> float:
        """The longest time between two acknowledgements, beginning at `since`."""
        times = [since, *(acknowledged for _, acknowledged in self.acknowledged if acknowledged > since)]
        return max(later - earlier for earlier, later in pairwise(times))
