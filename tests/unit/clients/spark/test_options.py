from datetime import date
from typing import Any

import pytest

from braidmq.errors import InvalidName
from braidmq.spark.errors import InvalidOption
from braidmq.spark.native_read import read
from braidmq.spark.options import (
    ReadOptions,
    Source,
    batch_read_options,
    batch_write_options,
    checked_credentials,
    stream_read_options,
    stream_write_options,
)
from braidmq.spark.spans import Span
from filer.topic.positions import to_marker

SOURCE = Source("http://127.0.0.1:8080", "orders")


def test_defaults_equal_those_of_kafkas_source() -> None:
    assert batch_read_options({"topic": "orders"}) == ReadOptions(SOURCE)
    assert stream_read_options({"subscribe": "orders"}) == ReadOptions(SOURCE, start="latest")


def test_names_come_in_lower_case() -> None:
    given = {"topic": "orders", "startingoffsets": "earliest", "maxoffsetspertrigger": "7", "failondataloss": "FALSE"}
    expected = ReadOptions(SOURCE, start="earliest", most_rows=7, fail_on_data_loss=False)
    assert stream_read_options(given) == expected


def test_positions() -> None:
    marker = to_marker("orders", {3: 10, 4: 0})
    read = batch_read_options({"topic": "orders", "startingOffsets": '{"3": 10, "4": 0}', "endingOffsets": marker})
    assert read.start == read.end == {3: 10, 4: 0}


def test_times() -> None:
    read = batch_read_options(
        {"topic": "orders", "startingTimestamp": "1500", "endingTimestamp": "1970-01-01T01:00:02+01:00"}
    )
    assert (read.since_us, read.until_us) == (1_500_000, 2_000_000)


def test_parts() -> None:
    read = batch_read_options({"topic": "orders", "segments": "0, 3", "slots": "0-4096", "ranges": '{"3": [5, 9]}'})
    assert (read.segments, read.slots, read.ranges) == ((0, 3), (0, 4096), (Span(3, 5, 9),))


def test_what_spark_says_of_a_query_by_itself() -> None:
    given = {"topic": "orders", "queryname": "copy", "checkpointlocation": "file:/checkpoint"}
    assert stream_write_options(given).source == SOURCE


def test_headers() -> None:
    given = {"topic": "orders", "header.authorization": "Bearer x"}
    assert stream_write_options(given).source.headers == {"authorization": "Bearer x"}


def test_credentials_are_options_and_are_not_shown() -> None:
    given = {"topic": "orders", "tokenfile": "t", "ca": "c", "clientcert": "x", "clientkey": "k"}
    source = batch_read_options(given).source
    assert source.credentials == {"tokenFile": "t", "ca": "c", "clientCert": "x", "clientKey": "k"}
    assert "secret" not in repr(batch_write_options({"topic": "orders", "token": "secret"}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"token": "a", "tokenFile": "b"}, "token or tokenFile, not both"),
        ({"clientKey": "k"}, "give clientCert too"),
        ({"tokenfile": "b"}, "did you mean 'tokenFile'"),
    ],
)
def test_credentials_that_cannot_be(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        checked_credentials(given)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("startingOfsets", "earliest", "unknown option .*did you mean 'startingOffsets'"),
        ("maxOffsetsPerTrigger", "5", "'maxOffsetsPerTrigger' is not allowed for batch reading"),
        ("startingOffsets", "oldest", "earliest, latest, a marker"),
        ("startingOffsets", '{"0": -2}', "not a segment with an offset of 0 or more"),
        ("startingOffsets", '{"a": 1}', "startingOffsets"),
        ("startingOffsets", "{}", "names no segment"),
        ("startingTimestamp", "yesterday", "milliseconds since 1970"),
        ("startingTimestamp", "9" * 16, "within the years 1970 to 9999"),
        ("startingTimestamp", "9" * 5000, "within the years 1970 to 9999"),
        ("startingTimestamp", "2026-01-01T00:00:00", "no time zone"),
        ("minPartitions", "9" * 5000, "whole number of 1 or more"),
        ("minPartitions", "0", "whole number of 1 or more"),
        ("failOnDataLoss", "no", "true or false"),
        ("segments", "0,x", "their ids"),
        ("slots", "7", "the first, and the one after the last"),
        ("slots", "9-9", "not a range within 0-65536"),
        ("ranges", '{"0": 5}', "such as"),
        ("ranges", '{"0": [7, 5]}', "not below the first"),
        ("ranges", '{"-1": [5, 7]}', "whole numbers"),
        ("subscribe", "other", "name the topic once"),
    ],
)
def test_what_a_batch_refuses(option: str, value: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        batch_read_options({"topic": "orders", option: value})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": {"0": 5, "1": 0}}, "'0': 5 is not a segment"),
        ({"start": {0: -1}}, "0: -1 is not a segment"),
        ({"end": {}}, "names no segment"),
        ({"start": "Earliest"}, "'Earliest' is not a marker of topic 'orders': .*; earliest, latest,"),
        ({"end": date(2026, 1, 1)}, "is not a position: give earliest"),
        ({"segments": 0}, "segments is 0: give their ids"),
        ({"segments": "0"}, "segments is '0': give their ids"),
        ({"slots": 5}, "slots is 5: give the first"),
        ({"slots": ("0", "9")}, "give the first"),
        ({"slots": (9, 9)}, "not a range within 0-65536"),
    ],
)
def test_what_read_refuses_before_it_asks_anybody(arguments: dict[str, Any], message: str) -> None:
    session: Any = None
    with pytest.raises(InvalidOption, match=message):
        read(session, "orders", url="http://127.0.0.1:1", **arguments)


def test_what_a_stream_refuses() -> None:
    with pytest.raises(InvalidOption, match="'endingOffsets' is not allowed for streaming"):
        stream_read_options({"topic": "orders", "endingOffsets": "latest"})


@pytest.mark.parametrize("name", ["startingOffsets", "startingoffsets"])
def test_a_stream_with_two_starts_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="begins at one position"):
        stream_read_options({"topic": "orders", name: "earliest", "startingTimestamp": "5"})


def test_what_writing_refuses() -> None:
    with pytest.raises(InvalidOption, match="name the topic once: option 'topic'"):
        batch_write_options({})
    with pytest.raises(InvalidName):
        batch_write_options({"topic": "a/b"})
    with pytest.raises(ValueError, match="producer_id"):
        batch_write_options({"topic": "orders", "producerId": "a b"})
    with pytest.raises(InvalidOption, match="'producerId' is not allowed for streaming writes"):
        stream_write_options({"topic": "orders", "producerId": "a"})
