"""The measuring of `mq bench`."""

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
    """What to publish: `messages` values of `size_bytes`, `batch` a request, by that many publishers at once."""

    topic: str
    messages: int
    size_bytes: int
    batch: int
    connections: int
    seconds: float


@dataclass(slots=True)
class Measured:
    """One step: how many messages of how many bytes in what time, and the seconds that each request took."""

    name: str
    size_bytes: int
    messages: int = 0
    seconds: float = 0.0
    requests: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The figures; a megabyte is a million bytes of values."""
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


async def measure_publish(client: AsyncClient, clock: Clock, plan: BenchPlan) -> Measured:
    """Publish until all messages are stored or the time is over; latency is a request's."""
    result = Measured("publish", plan.size_bytes)
    table = _rows(clock, min(plan.batch, plan.messages), plan.size_bytes)
    taken = 0
    began = clock.monotonic_seconds()

    async def publisher() -> None:
        nonlocal taken
        while taken < plan.messages and clock.monotonic_seconds() - began < plan.seconds:
            rows = table.slice(0, min(plan.batch, plan.messages - taken))
            taken += rows.num_rows
            sent = clock.monotonic_seconds()
            await _publish(client, plan.topic, rows)
            result.requests.append(clock.monotonic_seconds() - sent)
            result.messages += rows.num_rows

    await asyncio.gather(*(publisher() for _ in range(plan.connections)))
    result.seconds = clock.monotonic_seconds() - began
    return result


async def measure_read(client: AsyncClient, clock: Clock, plan: BenchPlan) -> Measured:
    """Read the whole topic as tables; latency is a page's."""
    result = Measured("read", plan.size_bytes)
    tables = client.browse_tables(plan.topic)
    began = asked = clock.monotonic_seconds()
    while (table := await tables.next_table()) is not None:
        now = clock.monotonic_seconds()
        result.requests.append(now - asked)
        result.messages += table.num_rows
        asked = now
    result.seconds = clock.monotonic_seconds() - began
    return result


async def _publish(client: AsyncClient, topic: str, rows: pa.Table) -> None:
    if rows.num_rows == 1:
        await client.publish(topic, rows["value"][0].as_py(), key=rows["key"][0].as_py())
    else:
        await client.publish_table(topic, rows, key="key", value="value")


def _rows(clock: Clock, count: int, size_bytes: int) -> pa.Table:
    """Values that do not compress, under keys that spread over all segments."""
    value = clock.entropy(size_bytes)
    values = [value[at:] + value[:at] for at in (row % max(size_bytes, 1) for row in range(count))]
    keys = [b"%d" % (row % _KEYS) for row in range(count)]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
