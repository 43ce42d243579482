"""How fast one consumer works through a queue group on S3, where records of the group take longer than all else.

    python -m bench.claims_on_s3 --seconds 30

It claims, and acks all of it, over and over: for each claim its ack's record has to be stored, and no second one should
be waited for. An S3 server in memory counts the puts; each takes some 50 ms longer there.
"""

import argparse
import time
from dataclasses import dataclass

import httpx
from rich.table import Table

from bench.harness.local_cluster import BenchCluster, forget_settings, local_cluster
from bench.harness.running import console, machine, show_progress

TOPIC = "/v1/topics/work"
PUT_DELAY_SECONDS = 0.05
MOST_CLAIMS_PER_SECOND = 20
CLAIMED = (1, 100)
WARM_UP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What one consumer has done."""

    claims: int
    seconds: float
    puts: int


def consume(client: httpx.Client, group: str, most: int, seconds: float) -> int:
    """Claim and ack for so long; how many claims."""
    until, claims = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        claimed = _post(client, f"{group}/claims", {"max": most, "wait": 10})["messages"]
        parts = [{"claim": each["claim"], "id": each["id"]} for each in claimed]
        _post(client, f"{group}/acks", {"messages": parts})
        claims += 1
    return claims


def _post(client: httpx.Client, path: str, body: dict[str, object]) -> dict[str, list[dict[str, str]]]:
    answer: dict[str, list[dict[str, str]]] = client.post(path, json=body).raise_for_status().json()
    return answer


def measure(cluster: BenchCluster, most: int, seconds: float) -> Measured:
    """Count what a group of its own does, and all puts meanwhile."""
    group = f"{TOPIC}/groups/by-{most}"
    with httpx.Client(base_url=next(iter(cluster.brokers.values())).url, timeout=60, trust_env=False) as client:
        consume(client, group, most, WARM_UP_SECONDS)
        before, began = cluster.store_requests(), time.monotonic()
        claims = consume(client, group, most, seconds)
        return Measured(claims, time.monotonic() - began, (cluster.store_requests() - before)["PUT"])


def publish(cluster: BenchCluster, messages: int) -> None:
    """Create the topic, and publish enough messages for all claims."""
    cluster.create_topic("work", segments=1)
    url = next(iter(cluster.brokers.values())).url
    headers = {"content-type": "application/x-ndjson"}
    httpx.post(f"{url}{TOPIC}/messages", content=b'{"value":1}\n' * messages, headers=headers).raise_for_status()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of each case (30)")
    options = parser.parse_args()
    forget_settings()
    table = Table(title=f"one consumer; {machine()}", title_justify="left")
    for name in ("messages a claim", "claims/s", "puts a claim"):
        table.add_column(name, justify="right")
    with local_cluster(brokers=1, put_delay_seconds=PUT_DELAY_SECONDS) as cluster:
        publish(cluster, round(MOST_CLAIMS_PER_SECOND * max(CLAIMED) * (options.seconds + WARM_UP_SECONDS)))
        for most in CLAIMED:
            show_progress(f"messages a claim: {most}")
            done = measure(cluster, most, options.seconds)
            table.add_row(f"{most}", f"{done.claims / done.seconds:.2f}", f"{done.puts / done.claims:.2f}")
    console().print(table)


if __name__ == "__main__":
    main()
