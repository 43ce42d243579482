"""Decides, once at the start, whether a broker traces."""

import logging
from collections.abc import Mapping

from mq.base.settings import BrokerSettings
from mq.base.trace_environment import is_disabled
from mq.tracing.tracer import NO_TRACER, Tracer

_log = logging.getLogger(__name__)


def open_tracer(settings: BrokerSettings, environment: Mapping[str, str]) -> Tracer:
    """The tracer that the settings, which have been checked, ask for.

    OpenTelemetry reads the other `OTEL_*` variables from the process's own environment.
    """
    if settings.tracing == "off":
        return NO_TRACER
    if is_disabled(environment):
        _log.warning("OTEL_SDK_DISABLED is set: there are no traces, although --tracing asks for them")
        return NO_TRACER
    # Imported here: a broker that does not trace needs none of it.
    from mq.tracing.otlp import otlp_tracer

    return otlp_tracer(settings, environment)
