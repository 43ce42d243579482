"""Run a peer's Python client, in a process of its own."""

import sys
from pathlib import Path

from bench.harness.counted_program import Counted, run_counted
from bench.peers.kafka import KafkaBroker
from bench.peers.python_packages import with_packages

CONFLUENT, NATS_PY = "bench.peers.confluent_loops", "bench.peers.nats_loops"
_TOPICS = "bench.peers.confluent_topics"


def python_loop(packages: Path | None, module: str, *arguments: object, server: int) -> Counted:
    """Run one of the loops of `bench.harness.client_loops`."""
    return run_counted(loop_command(module, *arguments), server=server, environment=environment(packages))


def loop_command(module: str, *arguments: object) -> list[str]:
    """Its command line."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def environment(packages: Path | None) -> dict[str, str]:
    """What a loop needs in its environment; ours needs no packages of peers."""
    return {} if packages is None else with_packages(packages)


def kafka_topics(
    packages: Path, broker: KafkaBroker, command: str, topic: str, *, partitions: int = 1, count: int = 1
) -> Counted:
    """Run `bench.peers.confluent_topics`."""
    arguments = (command, broker.address, topic, partitions, count)
    return python_loop(packages, _TOPICS, *arguments, server=broker.pid)
