"""A small local Spark: two threads, two tries per task, no user interface, free ports, nothing left behind."""

import contextlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.broker.broker_process import broker_environment
from tests.support.spark.spark_python import quick_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPILES = "spark.sql.codegen.wholeStage"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.maxResultSize": "0",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timeType.enabled": "true",
    # The one that Spark takes for a local directory starts twenty processes a micro-batch, to set modes and read links.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Compiling a query takes longer than to run it on so few rows; `compiling` is for those where it matters.
    COMPILES: "false",
    "spark.log.level": "ERROR",
}
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"


def start_java_quickly() -> None:
    """Environment for every Spark that this process and its children start from now on.

    It lives for a minute or two: the thorough compiler, and looking through all of Spark's classes, cost it more than
    all it is asked to do.
    """
    # Of drivers, of masters and workers, and of what builds the commands of them all.
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ[name] = QUICK_JAVA


@contextlib.contextmanager
def spark_session(master: str = "local[2,2]") -> "Iterator[SparkSession]":
    """A session that ends with the block. Fails the test in one line if there is no Java."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.fail("Spark needs Java 17 or later, and there is no java on the PATH: install one", pytrace=False)
    from pyspark.sql import SparkSession  # late: a second that only tests with Spark should spend

    from braidmq.spark.pandas_warning import ignore_pandas_warning

    with tempfile.TemporaryDirectory(prefix="braidmq-spark-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", quick_python())
        # Spark's own Python processes read topics by this checkout, whatever is installed.
        patch.setenv("PYTHONPATH", broker_environment({})["PYTHONPATH"])
        builder = SparkSession.builder.master(master).appName("braidmq tests")
        settings = {**SETTINGS, "spark.local.dir": folder, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        for name, value in settings.items():
            builder = builder.config(name, value)
        with warnings.catch_warnings():
            ignore_pandas_warning()
            session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()


@contextlib.contextmanager
def compiling(spark: "SparkSession") -> Iterator[None]:
    """Compile queries, as applications do: only then does Spark read Parquet by columns."""
    spark.conf.set(COMPILES, "true")
    try:
        yield
    finally:
        spark.conf.set(COMPILES, SETTINGS[COMPILES])
