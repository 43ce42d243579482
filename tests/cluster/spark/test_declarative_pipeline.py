"""Runs examples/carriers as docs/spark.md says."""

import importlib.util
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from braidmq import Client
from tests.support.broker.broker_process import ROOT, broker_environment
from tests.support.process.process_group import ProcessGroup
from tests.support.spark.spark_python import quick_python

# Twenty seconds would do on a machine that has nothing else to do.
pytestmark = [pytest.mark.xdist_group("spark-programs"), pytest.mark.timeout(600)]

EXAMPLE = ROOT / "examples" / "carriers"
WITH_TABLES_THAT_LAST = ("--conf", "spark.sql.catalogImplementation=hive")
STORAGE = "file:///tmp/braidmq-carriers"


def copy_of_example(folder: Path) -> Path:
    """The example, whose tables and checkpoints go into the folder, and how Spark runs it."""
    copy = shutil.copytree(EXAMPLE, folder / "carriers")
    (folder / "spark-defaults.conf").write_text("spark.ui.enabled false\n")
    spec = copy / "spark-pipeline.yml"
    assert STORAGE in spec.read_text()
    spec.write_text(spec.read_text().replace(STORAGE, (folder / "storage").as_uri()))
    return copy


def run_pipeline(folder: Path, url: str) -> None:
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    settings = {
        "BRAIDMQ_URL": url,
        "PYSPARK_PYTHON": quick_python(),
        "SPARK_CONF_DIR": str(folder.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Has Spark Connect take a free port.
        "SPARK_TESTING": "1",
        "TMPDIR": str(folder.parent),
        "TZ": "UTC",
    }
    command = [str(Path(spark.origin).with_name("bin") / "spark-pipelines"), "run", *WITH_TABLES_THAT_LAST]
    with ProcessGroup(command, folder=folder, env=broker_environment(settings), log=folder.parent / "log") as run:
        run.finish()


def publish(client: Client, *flights: tuple[str, int]) -> None:
    """Flights of carriers on days of a month."""
    for carrier, day in flights:
        client.publish("flights", {"carrier": carrier, "time_hour": f"2013-01-{day:02d}T05:00:00Z"}, key=carrier)


def per_carrier(folder: Path) -> dict[str, int]:
    """What the materialized view has."""
    rows = pq.read_table(folder / "spark-warehouse" / "per_carrier").to_pylist()
    return {row["carrier"]: row["flights"] for row in rows}


def published(client: Client) -> list[tuple[str, int, int]]:
    """Carriers, days and numbers of flights, of the messages that the pipeline has published."""
    values = [json.loads(bytes(message.value or b"")) for message in client.browse("carriers")]
    return sorted((value["carrier"], int(value["day"][8:10]), value["flights"]) for value in values)


def test_the_example_runs(client: Client, tmp_path: Path) -> None:
    """Into its table, its view and its topic; days that may see more flights are left open."""
    client.create_topic("flights", value_type="json")
    client.create_topic("carriers", value_type="json")
    folder = copy_of_example(tmp_path)
    publish(client, ("UA", 1), ("DL", 1), ("UA", 1), ("UA", 2), ("AA", 5))
    run_pipeline(folder, client.urls[0])
    assert per_carrier(folder) == {"AA": 1, "DL": 1, "UA": 3}
    assert published(client) == [("DL", 1, 1), ("UA", 1, 2), ("UA", 2, 1)]
