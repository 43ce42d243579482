import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from filer.slots import slot_of
from filer.stores.store_address import StoreAddress
from pipeline.commands import parse
from pipeline.errors import JobFailed
from pipeline.skew.skew import measure_skew
from pipeline.skew.skew_command import run_skew
from tests.support.process.mq import mq
from tests.support.spark.workers import on_spark
from tests.support.topic.stored_topic import TOPIC, store_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def test_every_message_is_counted_once(spark: "SparkSession", tmp_path: Path) -> None:
    asyncio.run(store_topic(tmp_path, sealed={0: (50, 20), 1: (7,)}, still_open=(30, 3)))
    report = measure_skew(on_spark(spark), StoreAddress(str(tmp_path)), TOPIC, parts=3, hottest=10, by="messages")
    # Message n of a segment has the key n modulo 7.
    counts = {
        slot_of(b"k%d" % key): sum(len(range(key, count, 7)) for count in (70, 7, 33)) for key in range(7)
    }  # fmt: skip
    assert {each.start: each.messages for each in report.hottest} == counts
    assert report.messages == sum(part.messages for part in report.parts) == 110
    assert len(report.parts) == 3 and report.size_bytes == sum(each.size_bytes for each in report.hottest)


def test_a_damaged_file_fails_in_one_line(spark: "SparkSession", tmp_path: Path) -> None:
    asyncio.run(store_topic(tmp_path, sealed={0: (5, 5)}))
    path = tmp_path / "topics/t/segments/segment=0/00000000000000000000.parquet"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(JobFailed, match=r"00000000000000000000\.parquet: not a whole Parquet file"):
        measure_skew(on_spark(spark), StoreAddress(str(tmp_path)), TOPIC, parts=3, hottest=10, by="messages")


def test_the_command_prints_json(tmp_path: Path) -> None:
    asyncio.run(store_topic(tmp_path, sealed={0: (50,)}))
    told = json.loads(mq("pipeline", "skew", TOPIC, "--store", str(tmp_path), "--master", "local[1]", "--json"))
    assert told["messages"] == 53 and told["segments"][0]["share"] == 1.0


def test_people_get_tables(spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(store_topic(tmp_path, sealed={0: (50,)}))
    run_skew(on_spark(spark), parse(["skew", TOPIC, "--store", str(tmp_path), "--parts", "2"]))
    table = capsys.readouterr().out
    assert table.startswith("topic t: 53 messages of ") and "\ncut at " in table
    assert [line.split("   ")[0] for line in table.splitlines() if "share of messages" in line] == [
        "hottest slot",
        "open segment",
        "suggested part",
    ]
