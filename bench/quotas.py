"""What one principal's flood does to another's publishes, with a quota and without.

    python -m bench.quotas

A broker with tokens on a memory file system. `small` publishes one message at a time, a fixed number a second, and its
p99 is measured: alone, then beside `greedy`, which offers ten times its share from many connections and does not wait
when it is refused; then the same without a quota.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench.harness.server_process import running_server, scratch_folder
from filer.clock import SystemClock
from mq.security.grants import parse_grants
from mq.security.signing_keys import SigningKeys

SHARE, OFFERED, CONNECTIONS, PER_SECOND = 100, 1000, 20, 50
_POLICY = "/v1/cluster/policy"


class Connection:
    """One connection of a principal, with a publish at a time."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        head = "POST /v1/topics/bench/messages HTTP/1.1\r\nhost: bench\r\ncontent-length: 64\r\n"
        self._request = f"{head}authorization: Bearer {token}\r\n\r\n".encode() + b"x" * 64

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def publish(self) -> int:
        """Publish one message; returns the status of the answer."""
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await self._reader.readexactly(int(length.partition(b":")[2]))
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        """End it."""
        self._writer.close()


async def paced(connection: Connection, per_second: float, until_seconds: float, statuses: Counter[int]) -> list[float]:
    """Publish at that rate; returns the milliseconds that each took from when it was due."""
    took_ms: list[float] = []
    due_seconds = time.perf_counter()
    while due_seconds < until_seconds:
        await asyncio.sleep(max(0.0, due_seconds - time.perf_counter()))
        statuses[await connection.publish()] += 1
        took_ms.append((time.perf_counter() - due_seconds) * 1000)
        due_seconds = max(due_seconds + 1 / per_second, time.perf_counter() - 1)
    return took_ms


async def measured(
    url: str, tokens: dict[str, str], seconds: float, *, is_beside: bool
) -> tuple[list[float], int, int]:
    """The times of `small`, and how many publishes of `greedy` were taken and refused."""
    small = Connection(url, tokens["small"])
    greedy = [Connection(url, tokens["greedy"]) for _ in range(CONNECTIONS * is_beside)]
    for each in (small, *greedy):
        await each.open()
    until_seconds = time.perf_counter() + seconds
    own, others = Counter[int](), Counter[int]()
    flood = [asyncio.create_task(paced(each, OFFERED / CONNECTIONS, until_seconds, others)) for each in greedy]
    took_ms = await paced(small, PER_SECOND, until_seconds, own)
    await asyncio.gather(*flood)
    for each in (small, *greedy):
        each.close()
    if set(own) != {200}:
        raise SystemExit(f"bench: publishes of the small principal were answered {dict(own)}")
    return took_ms, others[200], others[429]


async def compare(url: str, tokens: dict[str, str], seconds: float, rounds: int) -> None:
    """Print the table."""
    admin = {"authorization": f"Bearer {tokens['ada']}"}
    async with httpx.AsyncClient(base_url=url, headers=admin) as client:
        (await client.put("/v1/topics/bench", json={})).raise_for_status()
        await measured(url, tokens, 1.0, is_beside=False)
        print(f"| beside `small`, {PER_SECOND}/s | median | p99 | greedy: taken | refused |")
        print("| --- | ---: | ---: | ---: | ---: |")
        quota = [{"principal": "greedy", "requests_per_second": SHARE}]
        for name, quotas, is_beside in (
            ("nobody", quota, False),
            (f"{OFFERED}/s by one whose quota is {SHARE}/s", quota, True),
            (f"{OFFERED}/s by one without a quota", [], True),
        ):
            tag = (await client.get(_POLICY)).raise_for_status().headers["etag"]
            put = await client.put(_POLICY, json={"quotas": quotas}, headers={"if-match": tag})
            put.raise_for_status()
            runs = [await measured(url, tokens, seconds, is_beside=is_beside) for _ in range(rounds)]
            p99 = statistics.median(statistics.quantiles(run[0], n=100)[98] for run in runs)
            median = statistics.median(statistics.median(run[0]) for run in runs)
            taken, refused = (sum(counts) / rounds / seconds for counts in ([r[1] for r in runs], [r[2] for r in runs]))
            print(f"| {name} | {median:.1f} ms | {p99:.1f} ms | {taken:.0f}/s | {refused:.0f}/s |")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    clock = SystemClock()
    keys = SigningKeys(()).rotated(clock, 0)
    grants = parse_grants(["topic:*:*", "cluster:*"])
    tokens = {
        name: keys.sign(name, grants, audience="braidmq", ttl_seconds=3600, clock=clock)[0]
        for name in ("ada", "small", "greedy")
    }
    with scratch_folder() as folder:
        path = Path(folder) / "keys.json"
        path.write_text(json.dumps(keys.public()))
        asking = ["--authorizer", "tokens", "--token-keys", str(path), "--log-level", "error"]
        serving = ["serve", "--data", str(folder / "data"), "--port", "0", *asking]
        with running_server("mq.cli.main", serving) as (url, _):
            asyncio.run(compare(url, tokens, asked.seconds, asked.rounds))


if __name__ == "__main__":
    main()
