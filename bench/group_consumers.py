"""Many consumers of one queue group: whether all of them get work, and what they cost while there is none.

python -m bench.group_consumers --consumers 300 --idle 1000
"""

import argparse
import asyncio
import time
from statistics import mean
from typing import Any

import httpx
import orjson

from bench.harness.process_use import processor_seconds
from bench.harness.server_process import BenchFailed, running_server, scratch_folder

TOPIC = "/v1/topics/bench"
GROUP, IDLE_GROUP = f"{TOPIC}/groups/g", f"{TOPIC}/groups/idle"
SEGMENTS, CLAIMED = 6, 10
PUBLISHED_AT_ONCE, PAUSE_SECONDS = 1_000, 0.05


class Consumer:
    """A connection of its own, without a client library: hundreds of them would be what is measured."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a POST. Raises `BenchFailed` if it is a problem."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        assert self._reader is not None
        content = orjson.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\ncontent-length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode() + content)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
        document: dict[str, Any] = orjson.loads(await self._reader.readexactly(length))
        if not answer.startswith(b"http/1.1 200"):
            raise BenchFailed(str(document))
        return document

    async def consume(self, until: float) -> int:
        """Claim and ack until then; how many messages."""
        done = 0
        while (left_seconds := until - time.monotonic()) > 0:
            messages = (await self.post(f"{GROUP}/claims", {"max": CLAIMED, "wait": min(left_seconds, 20)}))["messages"]
            if messages:
                parts = [{"claim": each["claim"], "id": each["id"]} for each in messages]
                await self.post(f"{GROUP}/acks", {"messages": parts})
                done += len(messages)
        self.close()
        return done

    def close(self) -> None:
        """Go away."""
        if self._writer is not None:
            self._writer.close()


async def publish(client: httpx.AsyncClient, until: float) -> int:
    """Messages of many keys until then, at an even rate; how many."""
    sent = 0
    while time.monotonic() < until:
        lines = b"".join(b'{"key":"k%d","value":"x"}\n' % number for number in range(sent, sent + PUBLISHED_AT_ONCE))
        headers = {"content-type": "application/x-ndjson"}
        (await client.post(f"{TOPIC}/messages", content=lines, headers=headers)).raise_for_status()
        sent += PUBLISHED_AT_ONCE
        await asyncio.sleep(PAUSE_SECONDS)
    return sent


async def shares(url: str, consumers: int, seconds: float) -> str:
    """A row about who got how much."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        (await client.put(TOPIC, json={"segments": SEGMENTS})).raise_for_status()
        (await client.put(GROUP)).raise_for_status()
        until = time.monotonic() + seconds
        publishing = asyncio.create_task(publish(client, until))
        counts = await asyncio.gather(*(Consumer(url).consume(until) for _ in range(consumers)))
        sent = await publishing
    least, average = min(counts), mean(counts)
    return (
        f"| {consumers} | {sum(counts) / seconds:,.0f}/s of {sent / seconds:,.0f}/s | {average:.1f} | {least} "
        f"| {least / average:.2f} | {sum(count == 0 for count in counts)} |"
    )


async def idle_ratio(url: str, pid: int, waiting: int, seconds: float) -> float:
    """How much of a processor the broker uses while so many wait for messages that do not come."""
    consumers = [Consumer(url) for _ in range(waiting)]
    async with httpx.AsyncClient(base_url=url, timeout=90, trust_env=False) as client:
        (await client.put(IDLE_GROUP, json={"from": "latest"})).raise_for_status()
        tasks = [asyncio.create_task(each.post(f"{IDLE_GROUP}/claims", {"max": 1, "wait": 60})) for each in consumers]
        while (await client.get(IDLE_GROUP)).json()["waiting_consumers"] < waiting:
            await asyncio.sleep(0.2)
        await asyncio.sleep(2)
        before, began = processor_seconds(pid), time.monotonic()
        await asyncio.sleep(seconds)
        used = (processor_seconds(pid) - before) / (time.monotonic() - began)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in consumers:
            each.close()
        return used


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consumers", type=int, default=300)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    limits = ["--connections-per-address", "2000"]
    with scratch_folder() as folder:
        serving = ["serve", "--port", "0", "--log-level", "error", "--data", str(folder / "data"), *limits]
        with running_server("mq.cli.main", serving) as (url, pid):
            row = asyncio.run(shares(url, options.consumers, options.seconds))
            print("| consumers | acked | mean of each | least | least / mean | without any |")
            print("| ---: | ---: | ---: | ---: | ---: | ---: |")
            print(row)
            rest = asyncio.run(idle_ratio(url, pid, 1, options.seconds))
            used = asyncio.run(idle_ratio(url, pid, options.idle, options.seconds))
            print(f"\n{options.idle} that wait: {used * 100:.2f} % of a processor; 1 that waits: {rest * 100:.2f} %")


if __name__ == "__main__":
    main()
