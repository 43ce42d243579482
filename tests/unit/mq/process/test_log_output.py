"""Lines of the log as text and as JSON: what they tell, and that nobody forges one."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
import pytest

from filer import request_ids
from filer.clock import ManualClock
from filer.event_log import EventLog
from mq.process.log_output import LOOK_SECONDS, JsonLines, LimitedHandler, TextLines, write_log
from mq.process.repeat_limit import MOST_OF_NAME, MOST_OF_SUBJECT, WINDOW_SECONDS
from tests.support.traces.recorded_traces import TRACE_ID, TRACEPARENT, RecordedTraces

NAME = "tests.log_output"
PLAIN, EVENTS = logging.getLogger(NAME), EventLog(NAME)


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    PLAIN.propagate, PLAIN.handlers = False, [handler]
    PLAIN.setLevel("INFO")
    yield handler
    PLAIN.propagate, PLAIN.handlers = True, []


def log_all() -> None:
    PLAIN.warning("%s failed, 100%%", "GET /")
    EVENTS.info("segment_lost", topic="birds", segments=[3, 4], level="wrong", note="two\nlines request_id=forged")


def within_a_request() -> None:
    tracer = RecordedTraces().tracer_of("a")
    with request_ids.within("mine"), tracer.begin("publish", "birds", {"traceparent": TRACEPARENT}):
        log_all()


def test_text_ends_with_the_ids(kept: Kept) -> None:
    kept.setFormatter(TextLines())
    log_all()
    within_a_request()
    messages = [line.partition(f"{NAME}: ")[2] for line in kept.lines]
    event = r'segment_lost topic=birds segments=3,4 level=wrong note="two\nlines request_id=forged"'
    assert messages == [
        "GET / failed, 100%",
        event,
        f"GET / failed, 100% request_id=mine trace_id={TRACE_ID}",
        f"{event} request_id=mine trace_id={TRACE_ID}",
    ]


def test_json_has_the_fields_of_events_and_the_ids(kept: Kept) -> None:
    kept.setFormatter(JsonLines())
    log_all()
    within_a_request()
    lines: list[dict[str, Any]] = [json.loads(line) for line in kept.lines]
    assert all(line.pop("time").endswith("Z") for line in lines)
    plain = {"level": "warning", "logger": NAME, "message": "GET / failed, 100%"}
    event = {
        "level": "info",
        "logger": NAME,
        "event": "segment_lost",
        "topic": "birds",
        "segments": [3, 4],
        "note": "two\nlines request_id=forged",
    }
    ids = {"request_id": "mine", "trace_id": TRACE_ID}
    assert lines == [plain, event, plain | ids, event | ids]


def test_an_error_that_nobody_foresaw_has_its_traceback(kept: Kept) -> None:
    kept.setFormatter(JsonLines())
    try:
        raise ValueError("unforeseen")
    except ValueError as error:
        EVENTS.error("request_failed", traceback_of=error)
        PLAIN.exception("failed")
    for line in kept.lines:
        assert "\n" not in line
        assert "ValueError: unforeseen" in json.loads(line)["traceback"]


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_requests_to_stores_and_brokers_are_no_news(library: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Each of them logs every request: on S3 that was a line for each put and read."""
    caplog.set_level("INFO")
    write_log("info", "text", ManualClock())
    with library.Client(transport=library.MockTransport(lambda _: library.Response(200))) as client:
        client.get("http://store/")
    assert caplog.records == []


class Written:
    """What a handler with a clock of the test's own writes."""

    def __init__(self) -> None:
        self.clock, self._stream = ManualClock(), io.StringIO()
        self.handler = LimitedHandler(self._stream, self.clock)
        self.handler.setFormatter(TextLines())

    @property
    def messages(self) -> list[str]:
        return [line.partition(": ")[2] for line in self._stream.getvalue().splitlines()]


@pytest.fixture
def written() -> Iterator[Written]:
    made = Written()
    PLAIN.propagate, PLAIN.handlers = False, [made.handler]
    PLAIN.setLevel("INFO")
    yield made
    PLAIN.propagate, PLAIN.handlers = True, []


async def test_what_repeats_is_written_a_few_times_and_then_counted(written: Written) -> None:
    with request_ids.within("mine"):
        for n in range(100):
            EVENTS.warning("object_unreadable", topic="birds", key="a b", offset=n)
    assert len(written.messages) == MOST_OF_SUBJECT
    await written.clock.advance(WINDOW_SECONDS)
    with request_ids.within("mine"):
        EVENTS.info("topic_created", topic="x")
    told = """events_suppressed name=object_unreadable subject="topic=birds key=\\"a b\\"" count=95"""
    assert written.messages[MOST_OF_SUBJECT:] == [told, "topic_created topic=x request_id=mine"]


async def test_what_was_left_out_is_told_soon_after_the_minute_where_nothing_else_is_logged(written: Written) -> None:
    telling = asyncio.create_task(written.handler.tell_in_time())
    for _ in range(100):
        EVENTS.warning("object_unreadable", topic="birds")
    await written.clock.advance(WINDOW_SECONDS - 1)
    assert len(written.messages) == MOST_OF_SUBJECT
    await written.clock.advance(1 + LOOK_SECONDS)
    told = 'events_suppressed name=object_unreadable subject="topic=birds" count=95'
    assert written.messages[MOST_OF_SUBJECT:] == [told]
    await written.clock.advance(10 * WINDOW_SECONDS)
    assert written.messages[MOST_OF_SUBJECT:] == [told]
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


@pytest.mark.parametrize(
    "value", [2**70, -(2**63) - 1, "\ud800", float("nan")], ids=["large", "small", "half a pair", "nan"]
)
def test_json_has_whatever_a_field_is(kept: Kept, value: object) -> None:
    kept.setFormatter(JsonLines())
    EVENTS.info("segment_lost", value=value)
    (line,) = kept.lines
    assert json.loads(line)["value"] == (value if value == value else None)


async def test_what_is_no_warning_is_not_bounded(written: Written) -> None:
    for _ in range(100):
        EVENTS.info("topic_created", topic="x")
    assert len(written.messages) == 100


async def test_the_end_of_the_process_tells_what_was_left_out(written: Written) -> None:
    for n in range(100):
        EVENTS.error("request_failed", path=f"/{n}")
        PLAIN.warning("Unsupported upgrade request.")
    written.handler.close()
    assert len(written.messages) == MOST_OF_NAME + MOST_OF_SUBJECT + 2
    assert written.messages[-2:] == [
        f"events_suppressed name=request_failed count={100 - MOST_OF_NAME}",
        f'events_suppressed name={NAME} subject="Unsupported upgrade request." count={100 - MOST_OF_SUBJECT}',
    ]
