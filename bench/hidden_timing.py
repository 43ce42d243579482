"""Whether the time of an answer tells a topic that is there, and hidden, from one that is not there.

    python -m bench.hidden_timing

A broker with tokens on a memory file system, and a token for `orders-*` that asks for both kinds in turn over one
connection. The odds are how often an answer for what is hidden took longer than one for what is not there, both drawn
at random: 0.5 tells nothing.
"""

import argparse
import asyncio
import bisect
import json
import math
import random
import statistics
import time
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx
import orjson

from bench.harness.server_process import running_server, scratch_folder
from filer.clock import SystemClock
from mq.security.grants import parse_grants
from mq.security.signing_keys import SigningKeys

Asked: TypeAlias = tuple[str, str, Any]
"""A method, a path and a body. {} is the name."""
WARM = 50
HIDDEN, ABSENT = "secret-1", "secret-2"
GROUP, NO_GROUP = "hush", "push"
ASKED: dict[str, Asked] = {
    "describe": ("GET", "/v1/topics/{}", None),
    "read": ("GET", "/v1/topics/{}/messages", None),
    "publish": ("POST", "/v1/topics/{}/messages", {"messages": [{"value": 1}]}),
    "claim": ("POST", "/v1/topics/{}/groups/billing/claims", {"max": 1}),
    "dead letters of a group": ("PUT", "/v1/topics/orders-1/groups/g", {"dead_letter": {"topic": "{}"}}),
    "member of a topic group": ("PUT", "/v1/topic-groups/orders-new", {"topics": ["orders-x", "{}"]}),
    "list behind it": ("GET", "/v1/topics?after={}", None),
}
OF_MEMBER: dict[str, Asked] = {
    "time in the path of a member": ("GET", "/v1/topics/orders-m/messages?from={}", None),
    "upload in the body of a member": (
        "POST",
        "/v1/topics/orders-m/messages",
        {"messages": [{"ref": {"upload": "{}"}}]},
    ),
}


def request_of(asked: Asked, name: str, token: str) -> bytes:
    """The bytes of a request that names it."""
    method, path, body = asked
    data = b"" if body is None else orjson.dumps(body).replace(b"{}", name.encode())
    head = f"{method} {path.replace('{}', name)} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\nauthorization: Bearer {token}\r\n\r\n".encode() + data


async def took_us(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> float:
    """How long one request takes."""
    began_seconds = time.perf_counter()
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return (time.perf_counter() - began_seconds) * 1e6


def odds_of(one: list[float], other: list[float]) -> float:
    """How often one of the first took longer than one of the second."""
    ordered = sorted(other)
    return sum(bisect.bisect_left(ordered, each) for each in one) / len(one) / len(ordered)


async def compared(url: str, asked: Asked, names: tuple[str, str], token: str, count: int) -> tuple[list[float], ...]:
    """The times of requests that name the one, and of those that name the other, taken in turn."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    requests = [request_of(asked, name, token) for name in names]
    times: tuple[list[float], ...] = ([], [])
    draw = random.Random(1)
    for number in range(WARM + count):
        for which in draw.sample((0, 1), 2):
            took = await took_us(reader, writer, requests[which])
            if number >= WARM:
                times[which].append(took)
    writer.close()
    return times


async def measure(url: str, tokens: dict[str, str], count: int) -> None:
    """Print the table."""
    headers = {"authorization": f"Bearer {tokens['ada']}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        for path in ("/v1/topics/orders-1", f"/v1/topics/{HIDDEN}"):
            (await client.put(path)).raise_for_status()
        group = {"topics": ["orders-m", "secret-m"]}
        (await client.put(f"/v1/topic-groups/{GROUP}", json=group)).raise_for_status()
        (await client.put(f"/v1/topics/{HIDDEN}/groups/billing", json={"mode": "queue"})).raise_for_status()
    noise = 1.96 * math.sqrt((2 * count + 1) / (12 * count**2))
    print(f"95 of 100 times, odds of the same lie within 0.5 ± {noise:.3f}")
    print("| what names it | there, median | not there, median | odds |")
    print("| --- | ---: | ---: | ---: |")
    for asked_of, names in ((ASKED, (HIDDEN, ABSENT)), (OF_MEMBER, (GROUP, NO_GROUP))):
        for what, asked in asked_of.items():
            there, absent = await compared(url, asked, names, tokens["ann"], count)
            medians = [statistics.median(each) for each in (there, absent)]
            print(f"| {what} | {medians[0]:.0f} us | {medians[1]:.0f} us | {odds_of(there, absent):.3f} |", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1500, help="requests of each kind")
    count = parser.parse_args().count
    clock = SystemClock()
    keys = SigningKeys(()).rotated(clock, 0)
    grants = {"ada": ["topic:*:*", "cluster:*"], "ann": ["topic:orders-*:*"]}
    tokens = {
        name: keys.sign(name, parse_grants(each), audience="braidmq", ttl_seconds=3600, clock=clock)[0]
        for name, each in grants.items()
    }
    with scratch_folder() as folder:
        path = Path(folder) / "keys.json"
        path.write_text(json.dumps(keys.public()))
        # The audit trail waits for the store in the same way for all refusals, and would add noise.
        asking = ["--authorizer", "tokens", "--token-keys", str(path), "--log-level", "error", "--audit", "off"]
        serving = ["serve", "--data", str(folder / "data"), "--port", "0", *asking]
        with running_server("mq.cli.main", serving) as (url, _):
            asyncio.run(measure(url, tokens, count))


if __name__ == "__main__":
    main()
