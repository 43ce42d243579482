"""The trace that the caller is in, so that brokers go on with it, for programs that use OpenTelemetry."""

import sys
from collections.abc import Mapping

TraceHeaders = Mapping[str, str]


def trace_headers() -> TraceHeaders:
    """Return the headers of the current trace (`traceparent`); none outside of a trace.

    A program that has not imported OpenTelemetry is in no trace, and nothing is imported for it.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry import propagate

    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
