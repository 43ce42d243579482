"""Spark at a broker that speaks TLS only, and asks for tokens."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from braidmq import Client
from braidmq.spark import load, read, register
from filer.clock import SystemClock
from tests.support.broker.broker_process import BrokerProcess
from tests.support.net.authority import Authority
from tests.support.token_maker import TokenMaker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]


def test_all_ways_of_spark_take_a_token_and_a_ca(spark: SparkSession, tmp_path: Path) -> None:
    """The data source in both directions, a bulk load, and Spark's own reader with the newest messages from brokers."""
    authority = Authority(tmp_path)
    certificate = authority.sign("broker")
    maker = TokenMaker(now_seconds=SystemClock().now_us() / 1e6)
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    (tmp_path / "token").write_text(maker.token("topic:orders:*"))
    args = ("--authorizer", "tokens", "--token-keys", str(tmp_path / "keys.json"))
    tls = ("--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key))
    credentials = {"tokenFile": str(tmp_path / "token"), "ca": str(authority.ca)}
    register(spark)
    frame = spark.range(100).select(col("id").cast("string").alias("value"))
    with BrokerProcess(data=tmp_path / "data", args=(*args, *tls), tls=authority.client()) as broker:
        options = {"url": broker.url, "topic": "orders", **credentials}
        with Client(broker.url, token_file=tmp_path / "token", ca=authority.ca) as client:
            client.create_topic("orders")
        frame.write.format("braidmq").mode("append").options(**options).save()
        load(frame, "orders", url=broker.url, segments=1, credentials=credentials)
        assert spark.read.format("braidmq").options(**options).load().count() == 200
        assert read(spark, "orders", url=broker.url, credentials=credentials).count() == 200
        del options["tokenFile"]
        refused = spark.read.format("braidmq").options(token="x", **options)
        with pytest.raises(Exception, match="token"):
            refused.load().count()
