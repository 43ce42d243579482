"""The image of jobs: `mq pipeline` on Spark, with a read-only root file system, beside a broker of the other image."""

import csv
from collections.abc import Sequence
from pathlib import Path

import httpx
import pyarrow.parquet as pq

from tests.image.broker_image import DATA, OPEN, until_ready
from tests.image.container import Container, config_of, root_of, running, writable_folder
from tests.image.software_list import check_software_list
from tests.support.process.processes import free_port

_ROWS = 1000
_JOB_SECONDS = 300.0


def try_spark_image(broker_image: str, spark_image: str, folder: Path) -> None:
    """Raises `AssertionError` if something does not hold."""
    data = writable_folder(folder / "data")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with root_of(broker_image) as root:
        container = Container(root, config_of(broker_image), [*OPEN, "--port", str(port)], {DATA: data})
        with running(container) as broker:
            until_ready(broker, url)
            httpx.put(f"{url}/v1/topics/numbers", json={"value_type": "json"}).raise_for_status()
            _try_jobs(spark_image, data, folder, url)


def _try_jobs(image: str, data: Path, folder: Path, url: str) -> None:
    with (data / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["k", "n"], *([f"key-{n % 7}", n] for n in range(_ROWS))])
    with root_of(image) as root:
        print(f"the SBOM of the jobs lists the {check_software_list(root)} packages that are there", flush=True)
        jobs = _Jobs(root, image, data, folder, url)
        load = ["--option", "header=true", "--key", "k", "--value-json"]
        # A backfill is always on Spark.
        assert f"of {_ROWS:,} messages" in jobs.run(["backfill", f"{DATA}/rows.csv", "numbers", *load])
        print("loads a table by Spark, as user 10001, with a read-only root file system", flush=True)
        assert f"{_ROWS:,} messages added" in jobs.run(["export", "numbers", "--to", f"{DATA}/table"])
        assert pq.read_table(data / "table").num_rows == _ROWS
        print("exports a topic to a table", flush=True)


class _Jobs:
    def __init__(self, root: Path, image: str, data: Path, folder: Path, url: str) -> None:
        self._root, self._config, self._data, self._folder, self._url = root, config_of(image), data, folder, url
        self._count = 0

    def run(self, arguments: Sequence[str]) -> str:
        """What the job prints. Raises `AssertionError` if it fails."""
        self._count += 1
        writable = {DATA: self._data, "/tmp": writable_folder(self._folder / f"tmp-{self._count}")}
        given = {"BRAIDMQ_URL": self._url, "HOME": "/tmp"}
        with running(Container(self._root, self._config, arguments, writable, given)) as job:
            assert job.process.wait(_JOB_SECONDS) == 0, "the job has failed"
            return job.log
