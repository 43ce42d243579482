"""A broker on a directory that Spark sees, and topics of which each key's messages are numbered."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidmq import Client
from braidmq.spark import register
from tests.support.broker.broker_process import BrokerProcess

NO_UPKEEP = ("--maintenance-interval", "3600")


@pytest.fixture(scope="session")
def braid_spark(spark: SparkSession) -> SparkSession:
    """The session with the data source."""
    register(spark)
    return spark


@pytest.fixture(scope="session")
def local_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Shared by the tests, which take topics of their own."""
    with BrokerProcess(data=tmp_path_factory.mktemp("spark") / "a folder [with] signs", args=NO_UPKEEP) as broker:
        yield broker


@pytest.fixture
def client(local_broker: BrokerProcess) -> Iterator[Client]:
    with Client(local_broker.url) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test's own."""
    return f"{request.node.name.replace('[', '.').replace(']', '')}"[:200]


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """The checkpoint of a streaming query."""
    return str(tmp_path / "checkpoint")
