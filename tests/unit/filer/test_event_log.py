"""Events as log records: their text, and what a hostile field can do to it, which is nothing."""

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filer.event_log import MOST_CHARACTERS, MOST_ITEMS, Event, EventLog, plain
from tests.support.thoroughness import few_or_many

_log = EventLog(__name__)


def test_an_event_is_a_record_of_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _log.info("segment_failed_over", topic="birds", segment=4, from_="a", to="b", none=None)
    (record,) = caplog.records
    assert record.getMessage() == "segment_failed_over topic=birds segment=4 from=a to=b"
    assert (record.levelno, record.name, record.funcName) == (
        logging.INFO,
        __name__,
        "test_an_event_is_a_record_of_the_standard_library",
    )
    assert isinstance(record.msg, Event) and record.msg.fields == {
        "topic": "birds",
        "segment": 4,
        "from": "a",
        "to": "b",
    }


def test_nothing_is_made_of_an_event_that_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("this should not be asked for")

    caplog.set_level(logging.WARNING)
    _log.info("a", field=Costly())
    _log.debug("a", field=Costly())
    assert caplog.records == []


def test_an_error_that_nobody_foresaw_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("x")
    _log.error("a", error=error, traceback_of=error)
    assert caplog.records[0].exc_info is not None and caplog.records[0].exc_info[1] is error


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("plain", "plain", id="word"),
        pytest.param("topics/a/segments/0.parquet", "topics/a/segments/0.parquet", id="key"),
        pytest.param("two words", '"two words"', id="words"),
        pytest.param("", '""', id="empty"),
        pytest.param("a=b", '"a=b"', id="looks like a field"),
        pytest.param('a"b\\', r'"a\"b\\"', id="quote"),
        pytest.param(
            "a\nb\r\x1b[31m\x85\u2028\u202e\ud800", r'"a\nb\r\u001b[31m\u0085\u2028\u202e\ud800"', id="control"
        ),
        pytest.param("vögel", '"vögel"', id="not ASCII"),
        pytest.param(True, "true", id="boolean"),
        pytest.param(3, "3", id="number"),
        pytest.param(0.123456789, "0.123457", id="fraction"),
        pytest.param([1, 2], "1,2", id="list"),
        pytest.param(range(MOST_ITEMS + 5), '"' + ",".join(map(str, range(MOST_ITEMS))) + ',…"', id="long list"),
        pytest.param(KeyError("k"), "\"KeyError: 'k'\"", id="error"),
        pytest.param(b"x", "b'x'", id="bytes"),
    ],
)
def test_values_in_a_line(value: object, text: str) -> None:
    assert str(Event("e", {"f": value})) == f"e f={text}"


@given(st.text())
def test_no_value_begins_a_line_or_a_field(text: str) -> None:
    line = str(Event("e", {"f": text, "g": 1}))
    assert len(line.splitlines()) == 1 and line.endswith(" g=1")
    value = line.removeprefix("e f=").removesuffix(" g=1")
    assert (json.loads(value) if value.startswith('"') else value) == text
    assert value.startswith('"') or not set(value) & set(' ="')


@settings(max_examples=few_or_many(10, 100))
@given(st.text(min_size=MOST_CHARACTERS + 1))
def test_long_values_are_cut(text: str) -> None:
    assert len(str(plain(text))) == MOST_CHARACTERS
