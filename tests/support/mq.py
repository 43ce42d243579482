"""The command line as a process: what a person's shell would run."""

import subprocess
import sys

from tests.support.broker_process import broker_environment
from tests.support.spark_python import quick_python


def mq(*arguments: str, timeout_seconds: float = 180) -> bytes:
    """What `mq` prints on stdout; fails the test with its stderr unless it ends with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "mq.cli.main", *arguments],
        env=broker_environment({"PYSPARK_PYTHON": quick_python()}),
        capture_output=True,
        timeout=timeout_seconds,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
