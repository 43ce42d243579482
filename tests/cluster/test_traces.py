"""Brokers as processes send their traces to a collector, and do not mind if there is none."""

import time
from pathlib import Path

import httpx
import pytest

from tests.support.broker.broker_process import BrokerFailedToStart, BrokerProcess
from tests.support.cluster.zookeeper_process import ZooKeeperProcess
from tests.support.process.processes import free_port
from tests.support.traces.otlp_receiver import OtlpReceiver
from tests.support.traces.recorded_traces import CLIENT_SPAN_ID, TRACE_ID, TRACEPARENT

TOPIC = "birds"
HEADERS = {"traceparent": TRACEPARENT}
TRACED = ("--tracing", "otlp")


def broker(name: str, folder: Path, zookeeper: ZooKeeperProcess, endpoint: str) -> BrokerProcess:
    return BrokerProcess(
        store=(folder / "store").as_uri(),
        args=["--broker", name, "--zookeeper", zookeeper.address, *TRACED],
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_SAMPLER": "parentbased_always_off"},
    )


def test_a_publish_across_two_processes_arrives_as_one_trace(tmp_path: Path) -> None:
    with OtlpReceiver() as receiver, ZooKeeperProcess(tmp_path, session_timeout_seconds=4) as zookeeper:
        with (
            broker("b0", tmp_path, zookeeper, receiver.url) as first,
            broker("b1", tmp_path, zookeeper, receiver.url) as second,
        ):
            httpx.put(f"{first.url}/v1/topics/{TOPIC}", json={"segments": 1}, timeout=30).raise_for_status()
            (segment,) = httpx.get(f"{first.url}/v1/topics/{TOPIC}", timeout=30).json()["segments"]
            owner = segment["brokers"][0].partition(".")[0]
            other = {"b0": second, "b1": first}[owner]
            url = f"{other.url}/v1/topics/{TOPIC}/messages"
            # The second one is in no trace, and the sampler begins none.
            for headers in (HEADERS, {}):
                httpx.post(url, content=b"heron", headers=headers, timeout=30).raise_for_status()
            httpx.get(url, headers=HEADERS, timeout=30).raise_for_status()
            assert [second.terminate(), first.terminate()] == [0, 0]
        spans = receiver.spans()
    assert {span.trace_id for span in spans} == {TRACE_ID}
    by_name = {span.name.partition(" ")[0]: span for span in spans}
    publish, forward, append, put = (by_name[name] for name in ("publish", "forward", "append", "put"))
    assert (publish.parent_id, publish.service) == (CLIENT_SPAN_ID, "braidmq")
    assert [forward.parent_id, append.parent_id, put.parent_id] == [publish.span_id, forward.span_id, append.span_id]
    assert publish.broker == forward.broker != append.broker == put.broker == owner
    assert by_name["tail"].parent_id == by_name["fetch"].span_id and by_name["tail"].broker == owner


def test_a_collector_that_is_away_is_told_once_and_delays_nothing(tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with BrokerProcess(data=tmp_path / "data", args=TRACED, env=env) as process:
        with httpx.Client(base_url=process.url, timeout=30) as client:
            client.put(f"/v1/topics/{TOPIC}").raise_for_status()
            published = 0
            while endpoint not in process.log or published < 300:
                client.post(f"/v1/topics/{TOPIC}/messages", content=b"heron").raise_for_status()
                published += 1
        began = time.monotonic()
        assert process.terminate() == 0
        assert time.monotonic() - began < 20
    assert process.log.count(endpoint) == 1


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"), ("OTEL_TRACES_SAMPLER", "sometimes")]
)
def test_what_would_trace_nothing_does_not_start(tmp_path: Path, variable: str, value: str) -> None:
    with (
        pytest.raises(BrokerFailedToStart) as failed,
        BrokerProcess(data=tmp_path / "data", args=TRACED, env={variable: value}),
    ):
        pass
    assert f"mq: {variable} must be " in str(failed.value)
