"""How long the next coordinator takes until it knows all groups, and what a group that nobody asks for costs.

    python -m bench.group_takeover --groups 1000 --holes 1000
    python -m bench.group_takeover --groups 10000 --holes 0     # memory of a group that nobody asks for

Each group acks every second of its messages, so that its snapshot has as many ranges as holes. The broker is killed;
the next one reads the log of `__groups`. `first answer` is the time from its "listening on" until it has described a
group. `requests` are those that it has sent to the store by then, all there are.
"""

import argparse
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import orjson
import pyarrow as pa

from bench.harness.server_process import running_server, scratch_folder

TOPIC = "/v1/topics/bench"
_CALLS = re.compile(r'braidmq_store_calls_total\{operation="(\w+)",outcome="\w+"\} (\S+)')
SERVE = ["serve", "--port", "0", "--log-format", "json"]


@contextmanager
def serving(folder: Path, log: Path) -> Iterator[tuple[httpx.Client, int]]:
    """A broker on that folder."""
    arguments = [*SERVE, "--data", str(folder / "data")]
    with (
        running_server("mq.cli.main", arguments, log=log) as (url, pid),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client, pid


def resident_bytes(pid: int) -> int:
    """What a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def make_groups(client: httpx.Client, groups: int, holes: int) -> None:
    """Groups that have acked every second of `2 * holes` messages."""
    client.put(TOPIC).raise_for_status()
    for start in range(0, max(2 * holes, 1), 1000):
        lines = b"".join(b'{"value":"%d"}\n' % number for number in range(start, start + 1000))
        headers = {"content-type": "application/x-ndjson"}
        client.post(f"{TOPIC}/messages", content=lines, headers=headers).raise_for_status()
    for number in range(groups):
        group = f"{TOPIC}/groups/g{number}"
        client.put(group, json={"max_in_flight": 100_000}).raise_for_status()
        if holes:
            ack_every_second(client, group, holes)


def ack_every_second(client: httpx.Client, group: str, holes: int) -> None:
    """Claim `2 * holes` messages and ack every second one."""
    left = holes
    while left:
        accept = {"accept": "application/vnd.apache.arrow.stream"}
        asked = {"max": min(2 * left, 10_000), "wait": 5}
        answer = client.post(f"{group}/claims", json=asked, headers=accept).raise_for_status()
        claims = orjson.loads(metadata_of(answer.content))["claims"]
        parts = [
            {"claim": claim["claim"], "from": offset, "to": offset + 1}
            for claim in claims
            for offset in range(claim["from"], claim["to"], 2)
        ]
        client.post(f"{group}/acks", json={"messages": parts}).raise_for_status()
        left -= len(parts)


def metadata_of(stream: bytes) -> bytes:
    """The claims in the metadata of an Arrow stream."""
    found: bytes = pa.ipc.open_stream(stream).schema.metadata[b"braid-claims"]
    return found


def taken_over(log: Path) -> dict[str, float]:
    """What the broker has logged of the groups that it has taken over."""
    events = [json.loads(line) for line in log.read_text().splitlines() if "groups_taken_over" in line]
    return {name: sum(event[name] for event in events) for name in ("groups", "records", "duration_seconds")}


def store_requests(client: httpx.Client) -> Counter[str]:
    """What a broker has asked of its store so far, by operation."""
    counts = Counter[str]()
    for line in client.get("/metrics").raise_for_status().text.splitlines():
        if found := _CALLS.fullmatch(line):
            counts[found[1]] += round(float(found[2]))
    return +counts


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--holes", type=int, default=1000, help="of each group (1000)")
    options = parser.parse_args()
    with scratch_folder() as folder:
        first, second = folder / "first.log", folder / "second.log"
        with serving(folder, first) as (client, pid):
            empty_bytes = resident_bytes(pid)
            began = time.perf_counter()
            make_groups(client, options.groups, options.holes)
            made_seconds = time.perf_counter() - began
            os.kill(pid, signal.SIGKILL)
        with serving(folder, second) as (client, pid):
            began = time.perf_counter()
            client.get(f"{TOPIC}/groups/g0").raise_for_status()
            answer_seconds = time.perf_counter() - began
            requests = store_requests(client)
            held_bytes = resident_bytes(pid) - empty_bytes
            names = (
                "groups",
                "holes in all",
                "made in",
                "taken over in",
                "first answer",
                "records",
                "requests",
                "memory",
            )
            print(f"| {' | '.join(names)} |\n|{' --- |' * len(names)}")
            found = taken_over(second)
            print(
                f"| {found['groups']:.0f} | {options.groups * options.holes} | {made_seconds:.1f} s "
                f"| {found['duration_seconds']:.2f} s | {answer_seconds:.2f} s | {found['records']:.0f} "
                f"| {', '.join(f'{count} {operation}' for operation, count in sorted(requests.items()))} "
                f"| {held_bytes / 1024**2:.1f} MiB, {held_bytes / options.groups / 1024:.2f} KiB a group |"
            )


if __name__ == "__main__":
    sys.exit(main())
