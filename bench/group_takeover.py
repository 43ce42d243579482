"""How long the next coordinator takes until it knows all groups, and what a group that nobody asks for costs.

    python -m bench.group_takeover --groups 1000 --holes 1000
    python -m bench.group_takeover --groups 10000 --holes 0     # memory of a group that nobody asks for

Of each group every second message is acked, so that what is known of it has as many ranges as holes. A broker writes
their records in bulk, as their coordinator would (`harness/group_maker.py`), and is killed. The next one reads the log
of `__groups`. `first answer` is the time from its "listening on" until it has described a group, `processor` what it
has used of one meanwhile, which says more on a busy machine. `requests` are those that it has sent to the store by
then, all there are.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.harness.process_use import processor_seconds
from bench.harness.server_process import BenchFailed, running_server, scratch_folder

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


def make_groups(folder: Path, groups: int, holes: int) -> None:
    """Have groups made that have acked every second of `2 * holes` messages, by a broker that is killed then."""
    program = [sys.executable, "-m", "bench.harness.group_maker", str(folder / "data"), str(groups), str(holes)]
    outcome = subprocess.run(program, check=False)
    if outcome.returncode != -signal.SIGKILL:
        raise BenchFailed(f"groups could not be made: exit code {outcome.returncode}")


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
        empty, log = folder / "empty", folder / "broker.log"
        with serving(empty, folder / "empty.log") as (_, pid):
            empty_bytes = resident_bytes(pid)
        began = time.perf_counter()
        make_groups(folder, options.groups, options.holes)
        made_seconds = time.perf_counter() - began
        with serving(folder, log) as (client, pid):
            began, used_seconds = time.perf_counter(), processor_seconds(pid)
            client.get(f"{TOPIC}/groups/g0").raise_for_status()
            answer_seconds = time.perf_counter() - began
            used_seconds = processor_seconds(pid) - used_seconds
            requests = store_requests(client)
            held_bytes = resident_bytes(pid) - empty_bytes
            names = (
                "groups",
                "holes in all",
                "made in",
                "taken over in",
                "first answer",
                "processor",
                "records",
                "requests",
                "memory",
            )
            print(f"| {' | '.join(names)} |\n|{' --- |' * len(names)}")
            found = taken_over(log)
            print(
                f"| {found['groups']:.0f} | {options.groups * options.holes} | {made_seconds:.1f} s "
                f"| {found['duration_seconds']:.2f} s | {answer_seconds:.2f} s | {used_seconds:.2f} s "
                f"| {found['records']:.0f} "
                f"| {', '.join(f'{count} {operation}' for operation, count in sorted(requests.items()))} "
                f"| {held_bytes / 1024**2:.1f} MiB, {held_bytes / options.groups / 1024:.2f} KiB a group |"
            )


if __name__ == "__main__":
    main()
