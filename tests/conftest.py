from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.net.shared_certificates import share_certificates
from tests.support.spark.session import spark_session, start_java_quickly
from tests.support.spark.spark_python import start_python_quickly
from tests.support.undisturbed_parsing import parse_undisturbed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

parse_undisturbed()
share_certificates()
start_java_quickly()
start_python_quickly()


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One Spark for all tests of a worker: mark them `xdist_group("spark")`, so that one worker has them all."""
    with spark_session() as session:
        yield session
