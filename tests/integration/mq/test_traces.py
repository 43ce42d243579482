"""Traces of publishes and reads through a cluster in this process: one trace across brokers, with the right parents."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from filer import request_ids
from filer.stores.memory_store import MemoryStore
from mq.tracing.otel_tracer import MOST_SPANS
from mq.tracing.otlp import ToldExporter, provided
from tests.support.broker.http_broker import http_broker
from tests.support.cluster.http_cluster import HttpCluster, until
from tests.support.process.processes import free_port
from tests.support.traces.recorded_traces import (
    TRACEPARENT,
    RecordedTraces,
    trace_id_of,
)

TOPIC = "birds"
HEADERS = {"traceparent": TRACEPARENT}
NOT_SAMPLED = {"traceparent": TRACEPARENT.removesuffix("1") + "0"}
Publish = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
def recorded() -> RecordedTraces:
    return RecordedTraces()


@pytest.fixture
async def cluster(recorded: RecordedTraces) -> AsyncIterator[HttpCluster]:
    made = HttpCluster()
    try:
        yield made
    finally:
        await made.stop_all()
        # However the requests ended, and whatever was under way when the brokers drained.
        assert recorded.open == []


async def start(cluster: HttpCluster, recorded: RecordedTraces, *names: str, **config: Any) -> str:
    """Start brokers and create the topic with one segment. Returns the name of its owner."""
    await cluster.start(*names, tracer_of=recorded.tracer_of)
    await cluster.create(names[0], TOPIC, **{"segments": 1, **config})
    recorded.clear()
    return (await cluster.brokers_of(names[0], TOPIC))[0][0]


async def publish(cluster: HttpCluster, name: str, value: str, headers: dict[str, str] = HEADERS) -> httpx.Response:
    path = f"/v1/topics/{TOPIC}/messages"
    answer = await cluster.up[name].client.post(path, content=value.encode(), headers=headers)
    return answer.raise_for_status()


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_publish_through_another_broker_is_one_trace(cluster: HttpCluster, recorded: RecordedTraces) -> None:
    owner = await start(cluster, recorded, "a", "b")
    other = next(name for name in "ab" if name != owner)
    answer = await publish(cluster, other, "heron")
    assert recorded.tree() == sorted(
        [
            f"client > publish@{other}",
            f"publish@{other} > forward@{other}",
            f"forward@{other} > append@{owner}",
            f"append@{owner} > queue@{owner}",
            f"append@{owner} > put@{owner}",
        ]
    )
    (root,), (forward,), (append,) = recorded.spans("publish"), recorded.spans("forward"), recorded.spans("append")
    assert (root.kind, forward.kind, append.kind) == (SpanKind.SERVER, SpanKind.CLIENT, SpanKind.SERVER)
    told = attributes_of(root)
    assert told["messaging.message.id"] == "0-0" and told["http.response.status_code"] == 200
    assert told["braidmq.request.id"] == answer.headers[request_ids.HEADER]
    assert attributes_of(forward)["braidmq.broker.url"] == cluster.up[owner].url
    put = attributes_of(recorded.spans("put")[0])
    assert put["braidmq.store.key"].startswith(f"topics/{TOPIC}/segments/") and put["braidmq.put.attempts"] == 1


async def test_publishes_that_share_a_call_are_traces_of_their_own(
    cluster: HttpCluster, recorded: RecordedTraces
) -> None:
    owner = await start(cluster, recorded, "a", "b")
    other = next(name for name in "ab" if name != owner)
    cluster.stores[owner].hold()
    ids = [f"{n:032x}" for n in range(1, 13)]
    headers = [{"traceparent": f"00-{each}-{'7' * 16}-01"} for each in ids]
    publishing = [
        asyncio.create_task(publish(cluster, other, "heron", each)) for each in [*headers, *[NOT_SAMPLED] * 9]
    ]
    await until(lambda: _are_open(recorded, "append", len(ids)))
    cluster.stores[owner].release()
    await asyncio.gather(*publishing)
    for each in ids:
        found = recorded.tree(each)
        assert f"forward@{other} > append@{owner}" in found and f"append@{owner} > queue@{owner}" in found
        assert len([line for line in found if "> append" in line]) == 1
    # Each of them is served by one put, which is in the trace of one of them and points to the others.
    served = [span for put in recorded.spans("put") for span in (put, *put.links)]
    assert len(served) == len(ids)
    assert {trace_id_of(span) for span in recorded.spans()} == set(ids)


async def _are_open(recorded: RecordedTraces, step: str, count: int) -> bool:
    return recorded.open.count(f"{step} {TOPIC}") >= count


async def test_copies_at_followers_belong_to_the_trace(cluster: HttpCluster, recorded: RecordedTraces) -> None:
    owner = await start(cluster, recorded, "a", "b", "c", replicas=3, acks="replicated")
    cluster.stores[owner].hold()
    await publish(cluster, owner, "heron")
    followers = sorted(set("abc") - {owner})
    expected = [f"client > publish@{owner}", f"publish@{owner} > queue@{owner}"]
    expected += [f"publish@{owner} > replicate@{owner}"] * 2
    expected += [f"replicate@{owner} > hold@{follower}" for follower in followers]
    assert recorded.tree() == sorted(expected)
    cluster.stores[owner].release()
    # The answer came before.
    await until(lambda: _has(recorded, "put"))
    assert f"publish@{owner} > put@{owner}" in recorded.tree()


async def _has(recorded: RecordedTraces, step: str) -> bool:
    return bool(recorded.spans(step))


async def test_a_read_of_another_brokers_segment_is_one_trace(cluster: HttpCluster, recorded: RecordedTraces) -> None:
    owner = await start(cluster, recorded, "a", "b")
    other = next(name for name in "ab" if name != owner)
    await publish(cluster, owner, "heron", NOT_SAMPLED)
    assert recorded.spans() == []
    answer = await cluster.up[other].client.get(f"/v1/topics/{TOPIC}/messages", headers=HEADERS)
    assert [each["value"] for each in answer.json()["messages"]] == ["heron"]
    # First from the file; then the owner is asked for what came after it.
    assert recorded.tree() == sorted(
        [
            f"client > receive@{other}",
            f"receive@{other} > plan@{other}",
            *[f"receive@{other} > read@{other}"] * 2,
            *[f"read@{other} > scan@{other}"] * 2,
            f"read@{other} > fetch@{other}",
            f"fetch@{other} > tail@{owner}",
            f"tail@{owner} > read@{owner}",
            f"read@{owner} > scan@{owner}",
            f"receive@{other} > render@{other}",
        ]
    )
    sources = [attributes_of(span).get("braidmq.read.source") for span in recorded.spans("read")]
    assert sorted(filter(None, sources)) == ["files", "owner"]
    (root,) = recorded.spans("receive")
    assert attributes_of(root)["messaging.batch.message_count"] == 1


async def test_a_read_at_the_owner_is_from_memory(cluster: HttpCluster, recorded: RecordedTraces) -> None:
    owner = await start(cluster, recorded, "a")
    await publish(cluster, owner, "heron", NOT_SAMPLED)
    path = f"/v1/topics/{TOPIC}/segments/0/messages"
    await cluster.up[owner].client.get(path, params={"offset": 0}, headers=HEADERS)
    assert recorded.tree() == ["client > receive@a", "receive@a > read@a", "receive@a > render@a"]
    assert attributes_of(recorded.spans("read")[0])["braidmq.read.source"] == "front store"


async def test_a_long_poll_tells_its_wait(cluster: HttpCluster, recorded: RecordedTraces) -> None:
    await start(cluster, recorded, "a")
    path = f"/v1/topics/{TOPIC}/messages"
    polling = asyncio.create_task(cluster.up["a"].client.get(path, params={"wait": 20}, headers=HEADERS))
    await until(lambda: _are_open(recorded, "wait", 1))
    await publish(cluster, "a", "heron", NOT_SAMPLED)
    assert len((await polling).json()["messages"]) == 1
    assert recorded.tree().count("receive@a > wait@a") == 1


async def test_a_read_of_many_segments_makes_a_bounded_number_of_spans(
    cluster: HttpCluster, recorded: RecordedTraces
) -> None:
    await start(cluster, recorded, "a", segments=200)
    answer = await cluster.up["a"].client.get(f"/v1/topics/{TOPIC}/messages", headers=HEADERS)
    assert answer.status_code == 200
    assert len(recorded.spans()) == MOST_SPANS
    (root,) = recorded.spans("receive")
    assert attributes_of(root)["braidmq.spans_left_out"] >= 200 - MOST_SPANS


async def test_a_stream_has_a_span_for_its_beginning_and_none_for_what_it_gives(
    cluster: HttpCluster, recorded: RecordedTraces
) -> None:
    owner = await start(cluster, recorded, "a", "b")
    other = next(name for name in "ab" if name != owner)
    client = cluster.up[other].client
    path, accept = f"/v1/topics/{TOPIC}/subscribe", {"accept": "application/x-ndjson"}
    async with client.stream("GET", path, headers={**HEADERS, **accept}) as stream:
        # Ended while the stream goes on.
        assert recorded.open == []
        begun = recorded.tree()
        assert f"client > subscribe@{other}" in begun
        lines = stream.aiter_lines()
        for n in range(20):
            await publish(cluster, owner, f"heron {n}", NOT_SAMPLED)
            while f"heron {n}" not in await anext(lines):
                pass
        assert recorded.tree() == begun


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/topics/none/messages", 404),
        (f"/v1/topics/{TOPIC}/messages?wait=never", 422),
        (f"/v1/topics/{TOPIC}/messages/0-7", 404),
    ],
)
async def test_a_refusal_is_no_error_of_the_broker(
    cluster: HttpCluster, recorded: RecordedTraces, path: str, status: int
) -> None:
    await start(cluster, recorded, "a")
    assert (await cluster.up["a"].client.get(path, headers=HEADERS)).status_code == status
    (root,) = recorded.spans("receive")
    assert attributes_of(root)["http.response.status_code"] == status
    assert root.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/healthz"),
        ("GET", f"/v1/topics/{TOPIC}"),
        ("GET", "/v1/topics/a%0Ab/messages"),
        ("PUT", f"/v1/topics/{TOPIC}"),
        ("POST", f"/v1/topics/{TOPIC}/messages/0-0"),
        ("GET", f"/internal/v1/topics/{TOPIC}/segments/0/tail?offset=0"),
    ],
)
async def test_nothing_else_is_traced(cluster: HttpCluster, recorded: RecordedTraces, method: str, path: str) -> None:
    await start(cluster, recorded, "a")
    # What is internal goes on with traces of other brokers, and begins none.
    headers = {} if path.startswith("/internal") else HEADERS
    await cluster.up["a"].client.request(method, path, headers=headers)
    assert recorded.spans() == []


async def test_spans_end_when_the_broker_drains(cluster: HttpCluster, recorded: RecordedTraces) -> None:
    await start(cluster, recorded, "a")
    cluster.stores["a"].hold()
    publishing = asyncio.create_task(publish(cluster, "a", "heron"))
    await until(lambda: _are_open(recorded, "put", 1))
    draining = asyncio.create_task(cluster.up["a"].broker.drain())
    await asyncio.sleep(0)
    cluster.stores["a"].release()
    await asyncio.gather(publishing, draining)
    assert recorded.open == []
    assert recorded.tree() == ["client > publish@a", "publish@a > put@a", "publish@a > queue@a"]


async def test_a_publish_that_the_store_keeps_waiting_says_so(cluster: HttpCluster, recorded: RecordedTraces) -> None:
    await cluster.start("a", tracer_of=recorded.tracer_of, publish_timeout=0.2)
    await cluster.create("a", TOPIC, segments=1)
    cluster.stores["a"].hold()
    answer = await cluster.up["a"].client.post(f"/v1/topics/{TOPIC}/messages", content=b"x", headers=HEADERS)
    assert answer.status_code == 503
    (root,) = recorded.spans("publish")
    assert root.status.status_code is StatusCode.ERROR and attributes_of(root)["error.type"] == "503"
    # The put goes on.
    assert recorded.open == [f"put {TOPIC}"]


async def test_a_collector_that_is_away_costs_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    endpoint = f"http://127.0.0.1:{free_port()}/v1/traces"
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=1)
    tracer = provided(ToldExporter(exporter, endpoint, lambda: "refused"), Resource({}))
    try:
        async with http_broker(MemoryStore(), tracer=tracer) as broker:
            (await broker.client.put(f"/v1/topics/{TOPIC}")).raise_for_status()
            for _ in range(700):
                answer = await broker.client.post(f"/v1/topics/{TOPIC}/messages", content=b"x", headers=HEADERS)
                answer.raise_for_status()
            answer = await broker.client.get(f"/v1/topics/{TOPIC}/messages", params={"limit": 1000}, headers=HEADERS)
            assert len(answer.json()["messages"]) == 700
        await tracer.close()
    finally:
        logging.getLogger("opentelemetry").setLevel(logging.NOTSET)
    told = [message for message in caplog.messages if endpoint in message]
    assert len(told) == 1
