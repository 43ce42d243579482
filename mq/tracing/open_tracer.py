"""Decides, once at the start, whether a broker traces."""

from collections.abc import Mapping

from filer.event_log import EventLog
from mq.base.settings import BrokerSettings
from mq.base.trace_environment import is_disabled
from mq.tracing.tracer import NO_TRACER, Tracer

_log = EventLog(__name__)


def open_tracer(settings: BrokerSettings, environment: Mapping[str, str]) -> Tracer:
    """Return the tracer for the settings, which have been checked.

    OpenTelemetry reads the other `OTEL_*` variables from the process's own environment.
    """
    if settings.tracing == "off":
        return NO_TRACER
    if is_disabled(environment):
        _log.warning("tracing_disabled", error="OTEL_SDK_DISABLED is set, although --tracing asks for traces")
        return NO_TRACER
    # Imported here: a broker that does not trace needs none of it.
    from mq.tracing.otlp import otlp_tracer

    return otlp_tracer(settings, environment)
