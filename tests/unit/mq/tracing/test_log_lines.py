"""Lines of the log that belong to a traced request tell its trace."""

import logging

from filer.event_log import EventLog
from mq.tracing.log_lines import TraceIdInLines
from tests.support.traces.recorded_traces import TRACE_ID, TRACEPARENT, RecordedTraces


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_lines_and_events_tell_the_trace_once() -> None:
    lines, logger = Lines(), logging.getLogger("tests.log_lines")
    logger.propagate, logger.handlers = False, [lines]
    lines.addFilter(TraceIdInLines())
    log = EventLog("tests.log_lines")
    with RecordedTraces().tracer_of("a").begin("publish", "birds", {"traceparent": TRACEPARENT}):
        logger.warning("%s failed, 100%%", "GET /")
        log.warning("segment_lost", segment=3)
    logger.warning("idle")
    log.warning("segment_lost", segment=4)
    assert lines.lines == [
        f"GET / failed, 100% trace_id={TRACE_ID}",
        f"segment_lost segment=3 trace_id={TRACE_ID}",
        "idle",
        "segment_lost segment=4",
    ]
