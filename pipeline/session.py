"""The Spark session of a job, on this machine or on a named cluster."""

import contextlib
import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import JobFailed
from pipeline.tasks import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Spark refuses files with columns of times of the day without this setting.
    "spark.sql.timeType.enabled": "true",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
}
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""spark-submit sets this variable. It then has chosen the master and the settings."""


@contextlib.contextmanager
def spark_session(job: str, master: str | None) -> "Iterator[SparkSession]":
    """Open a session for the block: on the cluster `master`, else on that of spark-submit, else on this machine.

    Raises `JobFailed` if Spark or Java is missing, or the cluster cannot be reached.
    """
    _check_installed()
    # Set before Spark is imported: its Java process inherits them.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from braidmq.spark.pandas_warning import ignore_pandas_warning

    with warnings.catch_warnings():
        ignore_pandas_warning()
        session = _start(job, master)
    try:
        yield session
    finally:
        session.stop()


def _start(job: str, master: str | None) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"braidmq {job}")
    if master is not None or _SUBMITTED not in os.environ:
        builder = builder.master(master or "local[*]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    try:
        with spark_failures():
            return builder.getOrCreate()
    except JobFailed as failure:
        raise JobFailed(f"Spark does not start on {master or 'this machine'}: {failure}") from failure


def _is_local(master: str | None) -> bool:
    return master.startswith("local") if master is not None else _SUBMITTED not in os.environ


def _check_installed() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise JobFailed("the pipeline runs on Spark, which is not installed: pip install 'braidmq[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise JobFailed("Spark needs Java 17 or later, and there is no java on the PATH: install one")
