"""How long short commands of `mq` take, from start to end, against a Python that does nothing.

    python -m bench.command_start

A broker in memory answers them. Each command runs `--runs` times as a process of its own, after one run that does not
count: the median and the best of the wall time, and the median of the processor time. `python -X importtime
.venv/bin/mq topic list` tells which imports the time goes to; tests/unit/mq/cli/test_imports.py bounds them.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from braidmq.testing import InMemoryBroker

MQ = str(Path(sys.executable).with_name("mq"))
TOPIC = "bench"
COMMANDS = [
    "--version",
    "--help",
    "topic create --help",
    "topic list",
    f"topic describe {TOPIC}",
    f"files ls {TOPIC}",
    f"publish {TOPIC} x",
    f"subscribe {TOPIC} --until-end",
]


def seconds_of(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Wall and processor seconds of one run."""
    before, began_seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    wall_seconds, after = time.perf_counter() - began_seconds, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(name: str, command: list[str], environment: dict[str, str], runs: int) -> None:
    """Print the row of one command."""
    seconds_of(command, environment)
    walls, processors = zip(*(seconds_of(command, environment) for _ in range(runs)), strict=True)
    figures = (f"{each * 1000:.0f} ms" for each in (median(walls), min(walls), median(processors)))
    print(f"| {name} | {' | '.join(figures)} |", flush=True)


def main() -> None:
    """Measure all commands, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", default=COMMANDS, help="other commands, each as one word")
    parser.add_argument("--runs", type=int, default=10, help="runs of each command (10)")
    options = parser.parse_args()
    print("| command | median | best | processor |\n| --- | ---: | ---: | ---: |")
    with InMemoryBroker() as broker, broker.client() as client:
        client.create_topic(TOPIC)
        client.publish(TOPIC, "x")
        environment = {**os.environ, "BRAIDMQ_URL": broker.url}
        measure("python -c pass", [sys.executable, "-c", "pass"], environment, options.runs)
        for command in options.commands:
            measure(f"mq {command}", [MQ, *command.split()], environment, options.runs)


if __name__ == "__main__":
    main()
