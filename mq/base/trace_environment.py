"""Checks the `OTEL_*` variables that configure traces: OpenTelemetry's SDK would ignore most mistakes."""

import importlib.util
import re
from collections.abc import Callable, Mapping

from filer.errors import InvalidConfig

_URL = re.compile(r"https?://[^\s/?#]+(?:[/?][^\s#]*)?")
_RATIO_SAMPLERS = ("traceidratio", "parentbased_traceidratio")
_SAMPLERS = ("always_on", "always_off", "parentbased_always_on", "parentbased_always_off", *_RATIO_SAMPLERS)
_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
MOST_QUEUED_SPANS = 1_000_000


def check_trace_environment(environment: Mapping[str, str], asked_by: str) -> None:
    """Raises `InvalidConfig` if traces cannot be sent, with the correct setting.

    `asked_by` names the flag, variable or key that asks for traces.
    """
    if not all(map(_is_installed, _NEEDED)):
        raise InvalidConfig(f"{asked_by}: traces need OpenTelemetry; install it by: pip install 'braidmq[otel]'")
    for variable, (is_right, rule) in _RULES.items():
        value = environment.get(variable, "").strip()
        if value and not is_right(value):
            raise InvalidConfig(f"{variable} must be {rule}, not {value!r:.80}")
    if environment.get("OTEL_TRACES_SAMPLER", "").strip() not in _RATIO_SAMPLERS and environment.get(_ARGUMENT):
        raise InvalidConfig(f"{_ARGUMENT} has no effect without OTEL_TRACES_SAMPLER={' or '.join(_RATIO_SAMPLERS)}")
    most, queued = (int(environment.get(name) or default) for name, default in _BATCH)
    if most > queued:
        raise InvalidConfig(f"{_BATCH[0][0]} must be at most {_BATCH[1][0]}, {queued}, not {most}")


def root_ratio(environment: Mapping[str, str]) -> float | None:
    """Return the share of untraced clients' requests that is traced; None if no sampler of shares is chosen."""
    if environment.get("OTEL_TRACES_SAMPLER", "").strip() not in _RATIO_SAMPLERS:
        return None
    return float(environment.get(_ARGUMENT) or 1.0)


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry as a whole is switched off."""
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _one_of(*names: str) -> tuple[Callable[[str], bool], str]:
    return lambda value: value in names, " or ".join(names)


def _number(least: float, most: float) -> tuple[Callable[[str], bool], str]:
    def is_right(value: str) -> bool:
        try:
            return least <= float(value) <= most
        except ValueError:
            return False

    return is_right, f"a number from {least:g} to {most:g}"


def _whole(most: int) -> tuple[Callable[[str], bool], str]:
    return lambda value: value.isdecimal() and 1 <= int(value) <= most, f"a whole number from 1 to {most}"


_ARGUMENT = "OTEL_TRACES_SAMPLER_ARG"
_BATCH = (("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512"), ("OTEL_BSP_MAX_QUEUE_SIZE", "2048"))
_ADDRESS = (lambda value: _URL.fullmatch(value) is not None, "an address of the form http://host:port")
_PROTOCOL = (lambda value: value == "http/protobuf", "http/protobuf, the only protocol that braidmq[otel] has")
_COMPRESSION = _one_of("none", "gzip", "deflate")
_TIMEOUT = _number(0.001, 3600)
_RULES: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "OTEL_SDK_DISABLED": (lambda value: value.lower() in ("true", "false"), "true or false"),
    "OTEL_TRACES_EXPORTER": (lambda value: value == "otlp", "otlp where traces are asked for"),
    "OTEL_EXPORTER_OTLP_PROTOCOL": _PROTOCOL,
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": _PROTOCOL,
    "OTEL_EXPORTER_OTLP_ENDPOINT": _ADDRESS,
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": _ADDRESS,
    "OTEL_EXPORTER_OTLP_COMPRESSION": _COMPRESSION,
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": _COMPRESSION,
    "OTEL_EXPORTER_OTLP_TIMEOUT": _TIMEOUT,
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": _TIMEOUT,
    "OTEL_TRACES_SAMPLER": _one_of(*_SAMPLERS),
    _ARGUMENT: _number(0, 1),
    "OTEL_PROPAGATORS": (
        lambda value: "tracecontext" in [each.strip() for each in value.split(",")],
        "a list with tracecontext, the only one that a broker takes and passes on",
    ),
    "OTEL_BSP_MAX_QUEUE_SIZE": _whole(MOST_QUEUED_SPANS),
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": _whole(MOST_QUEUED_SPANS),
    "OTEL_BSP_SCHEDULE_DELAY": _number(1, 3_600_000),
}
