"""Python programs that publish and read one message at a time, by our client, confluent-kafka and nats-py."""

import http.client
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench.beside.case import KAFKA, NATS, OURS, Case, Figure, Row, Side, Unit, Wanted
from bench.beside.programs import Programs
from bench.harness.client_loops import LOOK_EVERY, MESSAGES_PER_SECOND, VALUE_BYTES, WARM_UP_MESSAGES
from bench.harness.counted_program import Counted, begun_program
from bench.harness.process_use import used_by
from bench.harness.publishing import TOPIC
from bench.harness.server_process import BenchFailed, measured_broker
from bench.harness.wrk import RAW
from bench.peers.kafka import kafka_broker
from bench.peers.nats import jet_stream
from bench.peers.python_clients import CONFLUENT, NATS_PY, environment, kafka_topics, loop_command, python_loop

READ_MESSAGES = 2_000 * LOOK_EVERY
NATS_READ_MESSAGES = 200 * LOOK_EVERY
"""Fewer, since it takes a minute to publish half a million of them with its Python client."""
_OURS = "bench.harness.our_loops"


@dataclass(frozen=True, slots=True)
class Client:
    """A Python client, and a server for it with a new topic of so many segments: its address and pid."""

    name: str
    module: str
    packages: Path | None
    server: Callable[[int], AbstractContextManager[tuple[str, int]]]

    def run(self, server: tuple[str, int], command: str, number: float) -> Counted:
        """Run a loop."""
        address, pid = server
        return python_loop(self.packages, self.module, command, address, TOPIC, number, server=pid)


def loop_cases(found: Programs) -> list[Case]:
    """The cases whose names begin with `python`."""
    clients = list(_clients(found))
    return [
        _sending(clients, 1, (Wanted(400_000), Wanted(1.0, KAFKA))),
        _sending(clients, 4, (Wanted(400_000), Wanted(1.0, KAFKA))),
        _consuming(clients, 1, (Wanted(300_000), Wanted(1.75, KAFKA))),
        _consuming(clients, 4, (Wanted(300_000), Wanted(1.75, KAFKA))),
        _latency(clients, (Wanted(2.0), Wanted(1.1, KAFKA))),
        _single(clients, (Wanted(1.3),)),
    ]


def _clients(found: Programs) -> Iterator[Client]:
    yield Client(OURS, _OURS, None, _our_server)
    if found.python is None:
        return
    packages = found.python
    if (kafka := found.kafka) is not None:

        @contextmanager
        def kafka_server(segments: int) -> Iterator[tuple[str, int]]:
            with kafka_broker(kafka) as broker:
                kafka_topics(packages, broker, "create", TOPIC, partitions=segments)
                yield broker.address, broker.pid

        yield Client(KAFKA, CONFLUENT, packages, kafka_server)
    if (nats := found.nats) is not None:

        @contextmanager
        def nats_server(segments: int) -> Iterator[tuple[str, int]]:
            with jet_stream(nats) as server:
                yield f"nats://{server.address}", server.pid

        yield Client(NATS, NATS_PY, packages, nats_server)


@contextmanager
def _our_server(segments: int) -> Iterator[tuple[str, int]]:
    with measured_broker() as (url, pid):
        httpx.put(f"{url}/v1/topics/{TOPIC}", json={"segments": segments}).raise_for_status()
        yield url, pid


def _sending(clients: list[Client], segments: int, wanted: tuple[Wanted, ...]) -> Case:
    def of(client: Client, seconds: float) -> Counted:
        with client.server(segments) as server:
            return client.run(server, "send", seconds)

    what = f"Python: sent in a loop, {VALUE_BYTES} B, {segments} segment{'s' * (segments > 1)}"
    return _counting(f"python-send-{segments}", what, clients, segments, of, wanted)


def _consuming(clients: list[Client], segments: int, wanted: tuple[Wanted, ...]) -> Case:
    def of(client: Client, seconds: float) -> Counted:
        with client.server(segments) as server:
            messages = NATS_READ_MESSAGES if client.name == NATS else READ_MESSAGES
            client.run(server, "fill", messages)
            return client.run(server, "read", messages)

    what = f"Python: read in a loop, {VALUE_BYTES} B, {segments} segment{'s' * (segments > 1)}"
    return _counting(f"python-read-{segments}", what, clients, segments, of, wanted)


def _counting(
    name: str,
    what: str,
    clients: list[Client],
    segments: int,
    of: Callable[[Client, float], Counted],
    wanted: tuple[Wanted, ...],
) -> Case:
    def side(client: Client) -> Side:
        def measure(seconds: float) -> Mapping[str, Figure]:
            counted = of(client, seconds)
            return {name: Figure(counted.per_second, counted.processor_us, counted.use.memory_mib)}

        return Side(client.name, measure)

    # A stream of NATS has no parts.
    having = [client for client in clients if segments == 1 or client.name != NATS]
    return Case(name, [Row(name, what, Unit.PER_SECOND, wanted)], [side(client) for client in having])


def _latency(clients: list[Client], wanted: tuple[Wanted, ...]) -> Case:
    name = "python-latency"

    def side(client: Client) -> Side:
        def measure(seconds: float) -> Mapping[str, Figure]:
            count = max(100, round(seconds * MESSAGES_PER_SECOND))
            with client.server(1) as server, _subscriber(client, server, count) as told:
                client.run(server, "publish", count)
                counted = told()
            return {
                name: Figure(counted.told["p50_ms"], memory_mib=counted.use.memory_mib),
                f"{name}-p99": Figure(counted.told["p99_ms"]),
            }

        return Side(client.name, measure)

    what = f"Python to Python, {MESSAGES_PER_SECOND} messages/s"
    rows = [
        Row(name, f"{what}: from publish to subscriber, p50", Unit.MS, wanted),
        Row(f"{name}-p99", "the same, p99", Unit.MS),
    ]
    return Case(name, rows, [side(client) for client in clients])


@contextmanager
def _subscriber(client: Client, server: tuple[str, int], count: int) -> Iterator[Callable[[], Counted]]:
    """A process that reads; yields how to wait for what it tells at its end."""
    address, pid = server
    command = loop_command(client.module, "subscribe", address, TOPIC, count)
    with begun_program(command, server=pid, environment=environment(client.packages)) as told:
        yield told


def _single(clients: list[Client], wanted: tuple[Wanted, ...]) -> Case:
    name = "python-single"

    def side(client: Client) -> Side:
        def measure(seconds: float) -> Mapping[str, Figure]:
            with client.server(1) as server:
                counted = client.run(server, "single", seconds)
                figures = {name: Figure(counted.told["p50_ms"], counted.processor_us, counted.use.memory_mib)}
                if client.name == OURS:
                    figures[f"{name}-http"] = _raw_http(*server, seconds)
            return figures

        return Side(client.name, measure)

    rows = [
        Row(name, f"Python: one publish of {VALUE_BYTES} B after the other, p50", Unit.MS, wanted),
        Row(f"{name}-http", "the same by raw HTTP (http.client)", Unit.MS),
    ]
    return Case(name, rows, [side(client) for client in clients])


def _raw_http(url: str, pid: int, seconds: float) -> Figure:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    path, value = f"/v1/topics/{TOPIC}/messages", os.urandom(VALUE_BYTES)
    waits_ms: list[float] = []

    def publish() -> None:
        connection.request("POST", path, value, {"content-type": RAW})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise BenchFailed(f"a publish was answered {answer.status}")

    for _ in range(WARM_UP_MESSAGES):
        publish()
    with used_by(pid) as use:
        until_seconds = time.perf_counter() + seconds
        while (before_seconds := time.perf_counter()) < until_seconds:
            publish()
            waits_ms.append((time.perf_counter() - before_seconds) * 1000)
    connection.close()
    return Figure(statistics.median(waits_ms), use.processor_seconds / len(waits_ms) * 1e6, use.memory_mib)
