"""A Spark standalone cluster on this machine: a master, and workers of one core each, from the wheel of pyspark.

with SparkCluster(tmp_path / "cluster") as cluster:
    mq("pipeline", "backfill", ..., "--master", cluster.url, env=cluster.environment)
    cluster.workers[0].kill()
"""

import importlib.util
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.broker.broker_process import broker_environment
from tests.support.process.process_group import ProcessGroup
from tests.support.spark.session import QUICK_JAVA
from tests.support.spark.spark_python import quick_python

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    # Whoever looks for what a worker had that is gone gives up at once.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}
_DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """Entering the context starts it, leaving it kills whatever is left. `folder` is for what Spark writes."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        found = importlib.util.find_spec("pyspark")
        assert found is not None and found.origin is not None
        self._home, self._folder, self._count = Path(found.origin).parent, folder, workers
        self._stack = ExitStack()
        self.workers: list[ProcessGroup] = []
        self.url = ""

    @property
    def environment(self) -> dict[str, str]:
        """For its processes, and for those that use it: workers have this checkout installed, one may say."""
        return broker_environment(
            {
                "SPARK_HOME": str(self._home),
                "SPARK_CONF_DIR": str(self._folder),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_DIRS": str(self._folder),
                "SPARK_DAEMON_MEMORY": "128m",
                "PYSPARK_PYTHON": quick_python(),
                "TMPDIR": str(self._folder),
            }
        )

    def __enter__(self) -> Self:
        self._folder.mkdir()
        lines = [f"{name} {value}\n" for name, value in SETTINGS.items()]
        (self._folder / "spark-defaults.conf").write_text("".join(lines))
        with self._stack:
            self.url = self._start("master.Master").until_logged(r"spark://127\.0\.0\.1:[1-9]\d*")
            for _ in range(self._count):
                self.start_worker()
            for worker in self.workers:
                worker.until_logged("Successfully registered with master")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def start_worker(self) -> None:
        """Start one more worker; its executors belong to its process group."""
        resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / "work"))
        self.workers.append(self._start("worker.Worker", *resources, self.url))

    def _start(self, program: str, *arguments: str) -> ProcessGroup:
        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        command = [str(self._home / "bin" / "spark-class"), f"{_DEPLOY}.{program}", *address, *arguments]
        log = self._folder / f"{program}-{len(self.workers)}.log"
        return self._stack.enter_context(ProcessGroup(command, env=self.environment, log=log))
