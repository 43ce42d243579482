"""Traces that could not be sent, or not as meant, are refused at the start."""

import sys

import pytest

from filer.errors import InvalidConfig
from mq.base.read_settings import read_settings
from mq.base.trace_environment import check_trace_environment, root_ratio

RIGHT = {
    "OTEL_SDK_DISABLED": "false",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example:4318/base",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1]:4318/v1/traces",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x",
    "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
    "OTEL_TRACES_SAMPLER_ARG": "0.01",
    "OTEL_PROPAGATORS": "tracecontext, baggage",
    "OTEL_BSP_MAX_QUEUE_SIZE": "4096",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4096",
    "OTEL_BSP_SCHEDULE_DELAY": "1000",
    "OTEL_SERVICE_NAME": "queue",
}


def test_what_is_right() -> None:
    check_trace_environment({}, "--tracing")
    check_trace_environment(dict.fromkeys(RIGHT, ""), "--tracing")
    check_trace_environment(RIGHT, "--tracing")


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("OTEL_SDK_DISABLED", "yes", "true or false"),
        ("OTEL_TRACES_EXPORTER", "none", "otlp where traces are asked for"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "otlp"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf, the only protocol"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf, the only protocol"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "http://host:port"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://", "http://host:port"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "none or gzip or deflate"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "ten", "a number"),
        ("OTEL_TRACES_SAMPLER", "ratio", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "1%", "a number from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan", "a number from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "5", "a number from 0 to 1"),
        ("OTEL_PROPAGATORS", "b3", "a list with tracecontext"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "a whole number from 1"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "many", "a whole number from 1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1", "a number from 1"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(variable: str, value: str, rule: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_trace_environment({**RIGHT, variable: value}, "--tracing")
    assert str(refused.value).startswith(f"{variable} must be ")
    assert rule in str(refused.value) and repr(value) in str(refused.value)


def test_what_has_no_effect_together() -> None:
    with pytest.raises(InvalidConfig, match="OTEL_TRACES_SAMPLER_ARG has no effect without OTEL_TRACES_SAMPLER=trace"):
        check_trace_environment({"OTEL_TRACES_SAMPLER_ARG": "0.01"}, "--tracing")
    with pytest.raises(InvalidConfig, match="at most OTEL_BSP_MAX_QUEUE_SIZE, 100, not 512"):
        check_trace_environment({"OTEL_BSP_MAX_QUEUE_SIZE": "100"}, "--tracing")


def test_the_settings_are_checked_where_traces_are_asked_for_and_only_there() -> None:
    wrong = {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector"}
    assert read_settings({}, wrong, {}).tracing == "off"
    with pytest.raises(InvalidConfig, match="OTEL_EXPORTER_OTLP_ENDPOINT must be"):
        read_settings({"tracing": "otlp"}, wrong, {})


@pytest.mark.parametrize(
    ("layers", "name"),
    [
        (({"tracing": "otlp"}, {}, {}), "--tracing"),
        (({}, {"BRAIDMQ_TRACING": "otlp"}, {}), "BRAIDMQ_TRACING"),
        (({}, {}, {"tracing": "otlp"}), "tracing in the configuration file"),
    ],
    ids=["flag", "variable", "file"],
)
@pytest.mark.parametrize("missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp", "opentelemetry"])
def test_without_the_extra_it_is_told_how_to_install_it(
    layers: tuple[dict[str, str], dict[str, str], dict[str, str]],
    name: str,
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for known in [each for each in sys.modules if each == missing or each.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InvalidConfig) as refused:
        read_settings(*layers)
    assert str(refused.value) == f"{name}: traces need OpenTelemetry; install it by: pip install 'braidmq[otel]'"


@pytest.mark.parametrize(
    ("environment", "ratio"),
    [
        ({}, None),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, None),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, 1.0),
        (RIGHT, 0.01),
    ],
)
def test_the_share_that_is_traced(environment: dict[str, str], ratio: float | None) -> None:
    assert root_ratio(environment) == ratio
