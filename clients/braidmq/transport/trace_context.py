"""The caller's trace, which brokers continue, for programs that use OpenTelemetry."""

import sys
from collections.abc import Mapping

TraceHeaders = Mapping[str, str]
TRACING = "opentelemetry.trace"
"""A program that has not imported this module is in no trace."""


def may_be_traced() -> bool:
    """Whether the program may be in a trace."""
    return TRACING in sys.modules


def trace_headers() -> TraceHeaders:
    """Return the headers of the current trace (`traceparent`); none outside of a trace.

    Nothing is imported for a program that cannot be in one.
    """
    if not may_be_traced():
        return {}
    from opentelemetry import propagate

    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
