"""Run the command line as a separate process, as a shell would."""

import subprocess
import sys

from tests.support.broker.broker_process import broker_environment
from tests.support.spark.spark_python import quick_python


def mq(*arguments: str, timeout_seconds: float = 180) -> bytes:
    """Return what `mq` prints on stdout. Fails the test with its stderr if the exit code is not 0."""
    done = subprocess.run(
        [sys.executable, "-m", "mq.cli.main", *arguments],
        env=broker_environment({"PYSPARK_PYTHON": quick_python()}),
        capture_output=True,
        timeout=timeout_seconds,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
