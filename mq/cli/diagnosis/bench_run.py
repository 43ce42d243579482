"""The measurements of `mq bench`."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from braidmq import AsyncClient
from filer.clock import Clock

_KEYS = 65_536


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The plan: `messages` values of `size_bytes`, `batch` per request, by `connections` publishers at once."""

    topic: str
    messages: int
    size_bytes: int
    batch: int
    connections: int
    seconds: float


@dataclass(slots=True)
class Measurement:
    """One step: its messages, its total time, and the seconds that each request took."""

    name: str
    size_bytes: int
    messages: int = 0
    seconds: float = 0.0
    requests: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The figures. A megabyte is a million bytes of values."""
        p50, p99 = np.percentile(self.requests, [50, 99]) * 1000 if self.requests else (0.0, 0.0)
        rate = self.messages / max(self.seconds, 1e-9)
        return {
            "messages": self.messages,
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(rate, 1),
            "megabytes_per_second": round(rate * self.size_bytes / 1e6, 3),
            "p50_ms": round(float(p50), 3),
            "p99_ms": round(float(p99), 3),
        }


async def measure_publish(client: AsyncClient, clock: Clock, plan: BenchPlan) -> Measurement:
    """Publish until all messages are stored or the time is over. The latency is that of one request."""
    result = Measurement("publish", plan.size_bytes)
    table = _rows(clock, min(plan.batch, plan.messages), plan.size_bytes)
    claimed = 0
    started = clock.monotonic_seconds()

    async def publisher() -> None:
        nonlocal claimed
        while claimed < plan.messages and clock.monotonic_seconds() - started < plan.seconds:
            rows = table.slice(0, min(plan.batch, plan.messages - claimed))
            claimed += rows.num_rows
            sent = clock.monotonic_seconds()
            await _publish(client, plan.topic, rows)
            result.requests.append(clock.monotonic_seconds() - sent)
            result.messages += rows.num_rows

    await asyncio.gather(*(publisher() for _ in range(plan.connections)))
    result.seconds = clock.monotonic_seconds() - started
    return result


async def measure_read(client: AsyncClient, clock: Clock, plan: BenchPlan) -> Measurement:
    """Read the whole topic as tables. The latency is that of one page."""
    result = Measurement("read", plan.size_bytes)
    tables = client.browse_tables(plan.topic)
    started = requested = clock.monotonic_seconds()
    while (table := await tables.next_table()) is not None:
        now = clock.monotonic_seconds()
        result.requests.append(now - requested)
        result.messages += table.num_rows
        requested = now
    result.seconds = clock.monotonic_seconds() - started
    return result


async def _publish(client: AsyncClient, topic: str, rows: pa.Table) -> None:
    if rows.num_rows == 1:
        await client.publish(topic, rows["value"][0].as_py(), key=rows["key"][0].as_py())
    else:
        await client.publish_table(topic, rows, key="key", value="value")


def _rows(clock: Clock, count: int, size_bytes: int) -> pa.Table:
    """Values that do not compress, with keys that spread over all segments."""
    value = clock.entropy(size_bytes)
    values = [value[start:] + value[:start] for start in (row % max(size_bytes, 1) for row in range(count))]
    keys = [b"%d" % (row % _KEYS) for row in range(count)]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
