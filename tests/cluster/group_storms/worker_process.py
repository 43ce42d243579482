"""A worker of a storm: `python -m tests.cluster.group_storms.worker_process KIND NAME FILE TOPIC URLS`, until SIGTERM.

KIND is `threads` or `tasks`. A tenth of its handlers fail.
"""

import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from braidmq import AsyncClient, AsyncDelivery, Client, Delivery
from tests.cluster.group_storms.worker_runs import Runs

CONCURRENCY = 8
LONGEST_SECONDS, FAILING = 0.02, 0.1


def main(arguments: Sequence[str]) -> None:
    kind, name, path, topic, urls = arguments
    runs, chance = Runs(Path(path), name), random.Random(name)
    if kind == "threads":
        in_threads(urls, topic, runs, chance)
    else:
        asyncio.run(in_tasks(urls, topic, runs, chance))


def in_threads(urls: str, topic: str, runs: Runs, chance: random.Random) -> None:
    def handle(delivery: Delivery) -> None:
        begun = runs.begin(delivery.value_text or "")
        time.sleep(chance.uniform(0, LONGEST_SECONDS))
        fails = chance.random() < FAILING
        runs.end(begun, "failed" if fails else "done")
        if fails:
            raise ValueError("at random")

    with Client(urls) as client:
        client.worker(topic, group="g").run(handle, concurrency=CONCURRENCY, on_error=lambda *_: None)


async def in_tasks(urls: str, topic: str, runs: Runs, chance: random.Random) -> None:
    async def handle(delivery: AsyncDelivery) -> None:
        begun = runs.begin(delivery.value_text or "")
        await asyncio.sleep(chance.uniform(0, LONGEST_SECONDS))
        fails = chance.random() < FAILING
        runs.end(begun, "failed" if fails else "done")
        if fails:
            raise ValueError("at random")

    async with AsyncClient(urls) as client:
        await client.worker(topic, group="g").run(handle, concurrency=CONCURRENCY, on_error=lambda *_: None)


if __name__ == "__main__":
    main(sys.argv[1:])
