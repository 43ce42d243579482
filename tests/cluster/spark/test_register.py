"""Registering the data source: where Spark knows it, Spark would warn that it replaces one."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceRegistration

from braidmq.spark import BraidSource, register


def test_what_a_session_knows_is_not_registered_again(
    braid_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[type[DataSource]] = []
    monkeypatch.setattr(DataSourceRegistration, "register", lambda _, source: registered.append(source))
    register(braid_spark)
    assert not registered


def test_a_session_without_it_gets_it(braid_spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[type[DataSource]] = []
    monkeypatch.setattr(DataSourceRegistration, "register", lambda _, source: registered.append(source))
    monkeypatch.setattr(BraidSource, "name", classmethod(lambda _: "braidmq_of_nobody"))
    register(braid_spark)
    assert registered == [BraidSource]
