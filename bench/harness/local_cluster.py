"""A cluster to measure: the processes of `mq local`, on a temporary folder in memory."""

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import httpx

from bench.harness.request_counts import COUNTS_PATH
from bench.harness.server_process import BenchFailed, scratch_folder
from filer.clock import SystemClock
from filer.slots import slot_of
from filer.stores.open_store import open_store
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from mq.local.child import ChildProcess
from mq.local.cluster import S3_ENVIRONMENT, LocalBroker, LocalCluster, LocalSettings

TIME_LIMIT_SECONDS = 60.0
_POLL_SECONDS = 0.02
_TIMEOUT_SECONDS = 30.0
_FLUSH_INTERVAL = "BRAIDMQ_FLUSH_INTERVAL"
_REFUSED_TIMEOUT = "BRAIDMQ_REFUSED_TIMEOUT"


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """An open segment, a key that falls into it, and the broker (by name) that owns it."""

    segment: int
    key: str
    owner: str


class BenchCluster:
    """A running cluster. Brokers are named `broker-1` and so on."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.brokers: dict[str, LocalBroker] = {broker.name: broker for broker in cluster.brokers}
        self._first = next(iter(self.brokers.values()))
        self._cluster = cluster

    def store_requests(self) -> Counter[str]:
        """How many requests the S3 server has had so far, by kind."""
        answer = httpx.get(f"{self._cluster.s3_endpoint}{COUNTS_PATH}", timeout=_TIMEOUT_SECONDS).raise_for_status()
        return Counter(answer.json())

    def open_store(self) -> Store:
        """The store of the brokers. The caller closes it."""
        os.environ.update(S3_ENVIRONMENT)
        address = StoreAddress(self._cluster.store, self._cluster.s3_endpoint or None, "us-east-1", "path")
        return open_store(address, SystemClock())

    def create_topic(self, topic: str, **config: object) -> None:
        """Create a topic, and wait until every broker knows it."""
        httpx.put(f"{self._first.url}/v1/topics/{topic}", json=config, timeout=_TIMEOUT_SECONDS).raise_for_status()
        for broker in self.brokers.values():
            httpx.get(f"{broker.url}/v1/topics/{topic}", timeout=_TIMEOUT_SECONDS).raise_for_status()

    def segments(self, topic: str, *, ask: str | None = None) -> list[OpenSegment]:
        """The open segments, as the broker `ask` reports them."""
        broker = self.brokers[ask] if ask else self._first
        route = httpx.get(f"{broker.url}/v1/topics/{topic}/route", timeout=_TIMEOUT_SECONDS).raise_for_status().json()
        return [
            OpenSegment(each["segment"], _key_within(*each["range"]), each["owner"]["broker"].partition(".")[0])
            for each in route["segments"]
        ]

    def leader(self) -> str:
        """The name of the broker that leads."""
        answer = httpx.get(f"{self._first.url}/v1/cluster", timeout=_TIMEOUT_SECONDS).raise_for_status()
        return str(answer.json()["leader"]).partition(".")[0]

    def restart(self, broker: LocalBroker) -> None:
        """Start a broker again after its end, and wait until it takes requests."""
        broker.start()
        wait_until(lambda: _is_ready(broker), f"{broker.name} is ready again")


@contextlib.contextmanager
def local_cluster(
    *,
    brokers: int = 3,
    session_timeout_seconds: float = 10.0,
    put_delay_seconds: float | None = None,
    flush_interval_seconds: float | None = None,
    refused_timeout_seconds: float | None = None,
    more_seconds: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[BenchCluster]:
    """A cluster on a directory in memory, or with `put_delay_seconds` on an S3 server that delays its puts.

    `more_seconds` are further settings of its brokers, by the names of their variables.
    """
    settings_of_brokers = {
        _FLUSH_INTERVAL: flush_interval_seconds,
        _REFUSED_TIMEOUT: refused_timeout_seconds,
        **more_seconds,
    }
    with scratch_folder() as folder, asyncio.Runner() as runner, _environment(settings_of_brokers):
        settings = LocalSettings(
            folder,
            brokers=brokers,
            store="directory" if put_delay_seconds is None else "s3",
            first_port=0,
            session_timeout_seconds=session_timeout_seconds,
        )
        cluster = LocalCluster(settings, SystemClock())
        if put_delay_seconds is not None:
            command = [sys.executable, "-m", "bench.harness.slow_s3_server", "0", f"{put_delay_seconds}"]
            cluster.s3 = ChildProcess("s3", command, folder / "logs" / "s3.log")
        try:
            runner.run(cluster.start())
            yield BenchCluster(cluster)
            if failed := runner.run(cluster.stop()):
                raise BenchFailed(f"{', '.join(each.name for each in failed)} did not stop cleanly")
        finally:
            cluster.kill()


@contextlib.contextmanager
def _environment(durations_seconds: Mapping[str, float | None]) -> Iterator[None]:
    """Set what is not None in the environment of brokers that start within the context."""
    os.environ.update({name: f"{seconds}" for name, seconds in durations_seconds.items() if seconds is not None})
    try:
        yield
    finally:
        for name in durations_seconds:
            os.environ.pop(name, None)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. Raises `BenchFailed` if it does not come true in time."""
    deadline = time.perf_counter() + TIME_LIMIT_SECONDS
    while not condition():
        if time.perf_counter() > deadline:
            raise BenchFailed(f"waited {TIME_LIMIT_SECONDS:g} seconds in vain for: {what}")
        time.sleep(_POLL_SECONDS)


def forget_settings() -> None:
    """Remove settings from the environment, so that brokers run with their defaults."""
    for name in [name for name in os.environ if name.startswith("BRAIDMQ_")]:
        del os.environ[name]


def _is_ready(broker: LocalBroker) -> bool:
    try:
        return bool(broker.url) and httpx.get(f"{broker.url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _key_within(start: int, stop: int) -> str:
    number = 0
    while not start <= slot_of(b"key-%d" % number) < stop:
        number += 1
    return f"key-{number}"
