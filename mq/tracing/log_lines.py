"""The trace id in the lines of the log, so that one finds the trace of a line and the lines of a trace."""

import logging

from filer import tracing


class TraceIdInLines(logging.Filter):
    """Ends each line of plain text with the id of the trace that it belongs to. Events have it as a field already."""

    def filter(self, record: logging.LogRecord) -> bool:
        """As `logging.Filter.filter`; passes everything."""
        trace_id = tracing.current().trace_id
        if trace_id is not None and isinstance(record.msg, str):
            record.msg = f"{record.msg} trace_id={trace_id}"
        return True


def put_into_lines() -> None:
    """Have all lines that go through the handlers of the process tell their trace."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(TraceIdInLines())
