"""Counts published flights for each carrier, and for each carrier and day; the latter go to another topic."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

URL = os.environ.get("BRAIDMQ_URL", "http://127.0.0.1:8080")

spark = SparkSession.active()


def published() -> DataFrame:
    """All messages of the topic `flights`, from the oldest on."""
    messages = spark.readStream.format("braidmq").options(url=URL, topic="flights", startingOffsets="earliest").load()
    flight = sf.from_json("value", "carrier STRING, time_hour TIMESTAMP")
    return messages.select(flight.alias("flight")).select("flight.*")


@dp.table
def flights() -> DataFrame:
    """All flights, as a table to which each run adds."""
    return published()


@dp.materialized_view
def per_carrier() -> DataFrame:
    """The number of flights of each carrier so far."""
    return spark.read.table("flights").groupBy("carrier").agg(sf.count("*").alias("flights"))


dp.create_sink("carriers", "braidmq", {"url": URL, "topic": "carriers"})


@dp.append_flow(target="carriers")
def per_carrier_and_day() -> DataFrame:
    """A message for each carrier and day, once no more flights of that day are expected."""
    counted = (
        published()
        .withWatermark("time_hour", "1 day")
        .groupBy(sf.window("time_hour", "1 day"), "carrier")
        .agg(sf.count("*").alias("flights"))
    )
    value = sf.struct(sf.col("window.start").alias("day"), "carrier", "flights")
    return counted.select(sf.col("carrier").alias("key"), sf.to_json(value).alias("value"))
