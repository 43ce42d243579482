"""Many topics: making them, publishing once to each, and what they cost while nothing happens and at the next start."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import aiohttp

from bench.beside.case import KAFKA, NATS, OURS, Case, Figure, Row, Side, Unit, Wanted
from bench.beside.programs import Programs
from bench.beside.publishing import Measure
from bench.harness.process_use import memory_mib, used_by
from bench.harness.server_process import BenchFailed, measured_broker, running_server, scratch_folder
from bench.peers.kafka import Kafka, kafka_broker, started_broker
from bench.peers.nats import Nats, jet_stream
from bench.peers.python_clients import kafka_topics

CONNECTIONS = 16
SETTLE_SECONDS = 5.0
LEAST_IDLE_SECONDS = 10.0
MOST_MIB_AT_REST = 143.0
"""150 MB."""
_VALUE = b"x" * 200
_TIMEOUT = aiohttp.ClientTimeout(total=120)


def topic_cases(found: Programs) -> list[Case]:
    """The cases whose names begin with `topics`, and `rest`."""
    return [_many(found, 2_000), _starting(10_000), _at_rest(found)]


def _many(found: Programs, count: int) -> Case:
    name = f"topics-{count}"
    rows = [
        Row(f"{name}-create", f"creating {count:,} topics, {CONNECTIONS} requests at once", Unit.PER_SECOND,
            (Wanted(1_000),)),
        Row(f"{name}-publish", "publishing once to each of them", Unit.PER_SECOND, (Wanted(1_000),)),
        Row(f"{name}-idle", f"{count:,} idle topics: processor, of a core", Unit.PERCENT, (Wanted(1.0),)),
        Row(f"{name}-start", "start with them, until one that was asked for is there", Unit.SECONDS, (Wanted(2.0),)),
    ]  # fmt: skip
    sides = [Side(OURS, _ours(name, count, all_rows=True))]
    if found.kafka is not None and found.python is not None:
        sides.append(Side(KAFKA, _kafka(name, found.python, found.kafka, count)))
    return Case(name, rows, sides, rounds=1)


def _starting(count: int) -> Case:
    name = f"topics-{count}"
    row = Row(f"{name}-start", f"start with {count:,} topics, the same", Unit.SECONDS, (Wanted(5.0),))
    return Case(name, [row], [Side(OURS, _ours(name, count, all_rows=False))], rounds=1)


def _ours(name: str, count: int, *, all_rows: bool) -> Measure:
    def measure(seconds: float) -> Mapping[str, Figure]:
        figures: dict[str, Figure] = {}
        with scratch_folder() as folder:
            with _serving(folder) as (url, pid):
                create_seconds, publish_seconds = asyncio.run(_create_and_publish(url, count, publish=all_rows))
                if all_rows:
                    figures[f"{name}-create"] = Figure(count / create_seconds)
                    figures[f"{name}-publish"] = Figure(count / publish_seconds)
                    figures[f"{name}-idle"] = _idle(pid, seconds)
            began_seconds = time.perf_counter()
            with _serving(folder) as (url, _):
                asyncio.run(_publish_once(url, f"topic-{count - 1}"))
                figures[f"{name}-start"] = Figure(time.perf_counter() - began_seconds)
        return figures

    return measure


def _serving(folder: Path) -> AbstractContextManager[tuple[str, int]]:
    arguments = ["serve", "--data", str(folder / "data"), "--port", "0", "--log-level", "error"]
    return running_server("mq.cli.main", arguments)


def _idle(pid: int, seconds: float) -> Figure:
    time.sleep(SETTLE_SECONDS)
    with used_by(pid) as use:
        time.sleep(max(seconds, LEAST_IDLE_SECONDS))
    return Figure(use.processor_seconds / use.seconds * 100, memory_mib=use.memory_mib)


async def _create_and_publish(url: str, count: int, *, publish: bool) -> tuple[float, float]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS), timeout=_TIMEOUT) as session:

        async def create(number: int) -> None:
            async with session.put(f"{url}/v1/topics/topic-{number}", json={}) as answer:
                await _check(answer)

        async def publish_to(number: int) -> None:
            async with session.post(f"{url}/v1/topics/topic-{number}/messages", data=_VALUE) as answer:
                await _check(answer)

        create_seconds = await _for_each(count, create)
        return create_seconds, await _for_each(count, publish_to) if publish else 0.0


async def _for_each(count: int, do: Callable[[int], Awaitable[None]]) -> float:
    """How long it took to do it for each number, a few at once."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await do(number)

    began_seconds = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONNECTIONS):
            tasks.create_task(some())
    return time.perf_counter() - began_seconds


async def _publish_once(url: str, topic: str) -> None:
    async with (
        aiohttp.ClientSession(timeout=_TIMEOUT) as session,
        session.post(f"{url}/v1/topics/{topic}/messages", data=_VALUE) as answer,
    ):
        await _check(answer)


async def _check(answer: aiohttp.ClientResponse) -> None:
    text = await answer.text()
    if not answer.ok:
        raise BenchFailed(f"{answer.method} {answer.url.path}: {answer.status} {text[:300]}")


def _kafka(name: str, packages: Path, programs: Kafka, count: int) -> Measure:
    topics = "topic-{}"

    def measure(seconds: float) -> Mapping[str, Figure]:
        figures: dict[str, Figure] = {}
        with scratch_folder() as folder:
            with started_broker(programs, folder) as broker:
                kafka_topics(packages, broker, "create", "first")
                created = kafka_topics(packages, broker, "create", topics, count=count)
                published = kafka_topics(packages, broker, "publish", topics, count=count)
                figures[f"{name}-create"] = Figure(created.per_second)
                figures[f"{name}-publish"] = Figure(published.per_second)
                figures[f"{name}-idle"] = _idle(broker.pid, seconds)
            began_seconds = time.perf_counter()
            with started_broker(programs, folder) as broker:
                kafka_topics(packages, broker, "wait", topics, count=count)
                figures[f"{name}-start"] = Figure(time.perf_counter() - began_seconds)
        return figures

    return measure


def _at_rest(found: Programs) -> Case:
    row = Row("rest", "a server at rest, without topics: memory (PSS)", Unit.MIB, (Wanted(MOST_MIB_AT_REST),))
    sides = [Side(OURS, _resting(_our_pid))]
    if (kafka := found.kafka) is not None:
        sides.append(Side(KAFKA, _resting(lambda: _kafka_pid(kafka))))
    if (nats := found.nats) is not None:
        sides.append(Side(NATS, _resting(lambda: _nats_pid(nats))))
    return Case("rest", [row], sides, rounds=1)


def _resting(serving: Callable[[], AbstractContextManager[int]]) -> Measure:
    def measure(seconds: float) -> Mapping[str, Figure]:
        with serving() as pid:
            time.sleep(SETTLE_SECONDS)
            return {"rest": Figure(memory_mib(pid))}

    return measure


@contextmanager
def _our_pid() -> Iterator[int]:
    with measured_broker() as (_, pid):
        yield pid


@contextmanager
def _kafka_pid(programs: Kafka) -> Iterator[int]:
    with kafka_broker(programs) as broker:
        yield broker.pid


@contextmanager
def _nats_pid(programs: Nats) -> Iterator[int]:
    with jet_stream(programs) as server:
        yield server.pid
