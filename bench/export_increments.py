"""How long `mq pipeline export` takes for one new message: on a directory and on S3, as Parquet and as Iceberg.

    python -m bench.export_increments

A broker on a directory and `mq local --store s3` have a topic of 1,000 messages, which is exported first. Then one
message is published and exported, `--runs` times: the median of the wall and of the processor time of the command.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.command_start import MQ, seconds_of
from bench.harness.server_process import broker, scratch_folder
from braidmq import Client
from mq.local.cluster import S3_ENVIRONMENT

MESSAGES = 1000
TABLES = "s3://braidmq/tables"


@contextlib.contextmanager
def cluster_on_s3(folder: Path) -> Iterator[str]:
    """The URL of a broker on S3."""
    where = ["--store", "s3", "--data", str(folder / "cluster"), "--port", "0"]
    command = [MQ, "local", "--brokers", "1", *where, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["brokers"][0]["url"]
        finally:
            process.send_signal(signal.SIGINT)


def measure(place: str, url: str, table: str, form: str, runs: int, *more: str) -> None:
    """Print the row of one place and format. `more` are further options of the command."""
    topic = f"bench-{form}"
    environment = {**os.environ, **S3_ENVIRONMENT}
    command = [MQ, "pipeline", "export", topic, "--to", f"{table}/{form}", "--format", form, "--url", url, *more]
    with Client(url) as client:
        client.create_topic(topic, value_type="json")
        client.publish_many(topic, [json.dumps({"n": number}).encode() for number in range(MESSAGES)])
        seconds_of(command, environment)
        figures = []
        for number in range(runs):
            client.publish(topic, json.dumps({"n": number}).encode())
            figures.append(seconds_of(command, environment))
    walls, processors = zip(*figures, strict=True)
    print(f"| {place} | {form} | {median(walls):.2f} s | {median(processors):.2f} s |", flush=True)


def main() -> None:
    """Measure all four."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="increments of each (3)")
    options = parser.parse_args()
    print("| store and table | format | wall | processor |\n| --- | --- | ---: | ---: |")
    with scratch_folder() as folder:
        with broker() as (url, _):
            for form in ("parquet", "iceberg"):
                measure("directory", url, str(folder), form, options.runs)
        with cluster_on_s3(folder) as url:
            measure("S3", url, TABLES, "parquet", options.runs)
            catalog = ["--catalog", f"sqlite:///{folder}/catalog.db"]
            measure("S3", url, TABLES, "iceberg", options.runs, *catalog)


if __name__ == "__main__":
    main()
