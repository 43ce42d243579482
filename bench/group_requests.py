"""What groups that commit steadily cost on S3, and how long a commit waits there.

    python -m bench.group_requests --groups 100 --seconds 60

Each group has one member, which commits once a second, for groups with `acks: stored` and with `acks: replicated`. An
S3 server in memory counts requests; its puts take some 50 ms longer. The requests that an idle cluster sends as well
are taken off: what is left is what the groups cost. `replicated` needs two brokers.
"""

import argparse
import asyncio
import contextlib
import random
import statistics
from collections import Counter
from dataclasses import dataclass

import httpx
from rich.table import Table

from bench.harness.local_cluster import BenchCluster, forget_settings, local_cluster
from bench.harness.request_counts import KINDS
from bench.harness.running import console, machine, show_progress
from bench.harness.server_process import BenchFailed

TOPIC = "/v1/topics/work"
PUT_DELAY_SECONDS = 0.05
COMMIT_SECONDS = 1.0
WARM_UP_SECONDS = 5.0
SESSION_SECONDS = 3600
"""Long enough that no member has to send heartbeats."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Requests per second by kind, and how long each commit waited."""

    acks: str
    rates: dict[str, float]
    commit_ms: list[float]


async def measure(cluster: BenchCluster, acks: str, *, groups: int, seconds: float) -> Measured:
    """Count without commits, then with them."""
    url = next(iter(cluster.brokers.values())).url
    names = [f"{acks}-{number}" for number in range(groups)]
    async with contextlib.AsyncExitStack() as stack:
        # A client for each, since a pool of connections would have them wait for each other.
        made = (httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) for _ in names)
        clients = [await stack.enter_async_context(each) for each in made]
        # The first one finds its coordinator.
        epochs = [await join(clients[0], names[0], acks)]
        epochs += await asyncio.gather(*(join(*each, acks) for each in zip(clients[1:], names[1:], strict=True)))
        await asyncio.sleep(WARM_UP_SECONDS)
        idle = await counted(cluster, seconds)
        commit_ms: list[float] = []
        async with asyncio.TaskGroup() as tasks:
            committing = [
                tasks.create_task(commit_steadily(*each, commit_ms))
                for each in zip(clients, names, epochs, strict=True)
            ]
            await asyncio.sleep(WARM_UP_SECONDS)
            commit_ms.clear()
            busy = await counted(cluster, seconds)
            for task in committing:
                task.cancel()
        return Measured(acks, {kind: (busy[kind] - idle[kind]) / seconds for kind in KINDS}, commit_ms)


async def join(client: httpx.AsyncClient, name: str, acks: str) -> int:
    """Make the group, and be its only member. Returns the epoch of the topic's only segment."""
    group = f"{TOPIC}/groups/{name}"
    settings = {"mode": "stream", "acks": acks, "session_seconds": SESSION_SECONDS}
    (await client.put(group, json=settings)).raise_for_status()
    answer = (await client.post(f"{group}/members", json={"member_id": "only"})).raise_for_status()
    return int(answer.json()["segments"][0]["epoch"])


async def commit_steadily(client: httpx.AsyncClient, name: str, epoch: int, commit_ms: list[float]) -> None:
    """Commit one message more every second, from a random moment of a second on."""
    loop = asyncio.get_running_loop()
    due, position = loop.time() + random.uniform(0, COMMIT_SECONDS), 0
    while True:
        await asyncio.sleep(due - loop.time())
        due, position, began = due + COMMIT_SECONDS, position + 1, loop.time()
        positions = [{"segment": 0, "epoch": epoch, "position": position}]
        answer = await client.post(f"{TOPIC}/groups/{name}/commits", json={"member_id": "only", "positions": positions})
        if answer.status_code != 200:
            raise BenchFailed(f"a commit: {answer.status_code} {answer.text[:300]}")
        commit_ms.append((loop.time() - began) * 1000)


async def counted(cluster: BenchCluster, seconds: float) -> Counter[str]:
    """The requests of so many seconds."""
    before = await asyncio.to_thread(cluster.store_requests)
    await asyncio.sleep(seconds)
    return await asyncio.to_thread(cluster.store_requests) - before


def publish(cluster: BenchCluster, messages: int) -> None:
    """Create the topic with one segment, and publish what is committed later."""
    cluster.create_topic("work", segments=1)
    url = next(iter(cluster.brokers.values())).url
    body = b'{"value":1}\n' * messages
    headers = {"content-type": "application/x-ndjson"}
    httpx.post(f"{url}{TOPIC}/messages", content=body, headers=headers, timeout=60).raise_for_status()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds that are counted in each case (60)")
    options = parser.parse_args()
    forget_settings()
    table = Table(title=f"{options.groups} groups, a commit a second each; {machine()}", title_justify="left")
    for name in ("brokers", "acks", *(f"{kind}/s" for kind in KINDS), "commit p50", "p99"):
        table.add_column(name, justify="left" if name == "acks" else "right")
    for brokers, kinds_of_acks in ((1, ("stored",)), (2, ("stored", "replicated"))):
        with local_cluster(brokers=brokers, put_delay_seconds=PUT_DELAY_SECONDS) as cluster:
            publish(cluster, int(10 * options.seconds))
            for acks in kinds_of_acks:
                show_progress(f"brokers: {brokers}, acks={acks}")
                done = asyncio.run(measure(cluster, acks, groups=options.groups, seconds=options.seconds))
                quantiles = statistics.quantiles(done.commit_ms, n=100)
                rates = (f"{done.rates[kind]:.2f}" for kind in KINDS)
                waited = (f"{quantiles[49]:.1f} ms", f"{quantiles[98]:.1f} ms")
                table.add_row(f"{brokers}", acks, *rates, *waited)
    console().print(table)


if __name__ == "__main__":
    main()
