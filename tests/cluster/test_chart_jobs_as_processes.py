"""The chart's CronJobs, run as processes of this machine, on Spark, against brokers from the same manifests."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.kube.chart import manifests, on_this_machine
from tests.support.kube.pods import Pods
from tests.support.spark.session import QUICK_JAVA

pytestmark = [pytest.mark.xdist_group("spark-programs"), pytest.mark.timeout(400)]
NAME = "queue"
# So many that the job takes Spark for them: up to 64 MiB it needs none.
MESSAGES, MESSAGE_BYTES = 80, 900_000
PUBLISHING = f"""
import os
from braidmq import Client
with Client() as client:
    client.create_topic("orders", segments=2)
    for number in range({MESSAGES}):
        client.publish("orders", os.urandom({MESSAGE_BYTES}), key=str(number))
"""


def test_a_job_reads_the_files_of_a_topic_on_spark(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    table = tmp_path / "table"
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(_values(tmp_path / "store", table)))
    with Pods(manifests(values=values), NAME, tmp_path) as pods:
        pods.install()
        job = pods.job(f"{NAME}-export")
        published = subprocess.run(
            [sys.executable, "-c", PUBLISHING], env=job.environment(), capture_output=True, text=True
        )
        assert published.returncode == 0, published.stderr
        done = job.run()
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert f"topic orders: {MESSAGES} messages added" in done.stdout
        assert "Picked up JAVA_TOOL_OPTIONS" in done.stderr, "it has taken Spark for it"
    read = pq.read_table(table, columns=["key"])
    assert sorted(int(key) for key in read["key"].to_pylist()) == list(range(MESSAGES))


def _values(store: Path, table: Path) -> dict[str, object]:
    """One broker, who asks for tokens and speaks TLS, and one job."""
    return {
        **on_this_machine(store),
        "fullnameOverride": NAME,
        "replicas": 1,
        "zookeeper": {"replicas": 1, "heapMebibytes": 96},
        "jobs": {
            "pipeline": [
                {"name": "export", "schedule": "30 3 * * *", "args": ["export", "orders", "--to", f"file://{table}"]}
            ],
            "extraEnv": [{"name": "JAVA_TOOL_OPTIONS", "value": QUICK_JAVA}],
        },
    }
