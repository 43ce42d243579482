"""Publishing and reading back: every form of each, waiting, markers, retention, transitions."""

import asyncio
import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filer.clock import ManualClock, SystemClock
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from filer.topic.topic_state import TopicState
from leader.policy.placement import owned
from mq.topic.topic_reader import TopicReader
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
MESSAGES = "/v1/topics/t/messages"
SECONDS = 20


async def topic(broker: HttpBroker, **config: Any) -> None:
    answer = await broker.client.put("/v1/topics/t", json=config)
    assert answer.status_code == 201, answer.text


async def publish(broker: HttpBroker, *values: Any, key: str | None = None) -> list[dict[str, int]]:
    messages = [{"key": key, "value": value} for value in values]
    answer = await broker.client.post(MESSAGES, json={"messages": messages})
    return list(answer.raise_for_status().json()["positions"])


async def browse(broker: HttpBroker, **params: Any) -> dict[str, Any]:
    return dict((await broker.client.get(MESSAGES, params=params)).raise_for_status().json())


def values(page: dict[str, Any]) -> list[Any]:
    return [message["value"] for message in page["messages"]]


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return bytes(sink.getvalue())


# -- forms -----------------------------------------------------------------------------------------------------

JSON_VALUES: list[Any] = [
    "",
    "text",
    "ü\u0000\n",
    None,
    0,
    -1.5,
    True,
    False,
    [],
    {},
    {"a": [1, {"b": None}]},
    "5",
    2**63,
]


async def test_json_values_come_back_as_they_were(broker: HttpBroker) -> None:
    await topic(broker)
    assert await publish(broker, *JSON_VALUES) == [{"segment": 0, "offset": 0, "count": len(JSON_VALUES)}]
    assert values(await browse(broker)) == JSON_VALUES


async def test_every_field_of_a_message(broker: HttpBroker) -> None:
    await topic(broker)
    message = {
        "key": "k",
        "value": "v",
        "headers": {"a": "1", "b": {"base64": "/w=="}},
        "event_time": "2026-01-31T13:00:00.123456+01:00",
    }
    binary = {"key_base64": "/w==", "value_base64": "/v8="}
    await broker.client.post(MESSAGES, json={"messages": [message, binary]})
    first, second = (await browse(broker))["messages"]
    stamp = first.pop("timestamp")
    age_seconds = (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()
    assert 0 <= age_seconds < 60
    assert stamp.endswith("Z") and len(stamp) == len("2026-01-31T12:00:00.123456Z")
    assert first == {
        "id": "0-0",
        "segment": 0,
        "offset": 0,
        "event_time": "2026-01-31T12:00:00.123456Z",
        "key": "k",
        "value": "v",
        "headers": message["headers"],
    }
    assert {"key_base64": "/w==", "value_base64": "/v8=", "event_time": None, "headers": {}}.items() <= second.items()
    assert "key" not in second and "value" not in second
    assert (await broker.client.get(f"{MESSAGES}/0-1")).json() == second


async def test_times_at_the_ends_of_the_calendar(broker: HttpBroker) -> None:
    await topic(broker)
    times = ["0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"]
    await broker.client.post(MESSAGES, json={"messages": [{"value": 1, "event_time": time} for time in times]})
    assert [message["event_time"] for message in (await browse(broker))["messages"]] == times


async def test_json_text_is_given_as_it_is(broker: HttpBroker) -> None:
    """Long numbers keep their digits, deep values are shown, and line breaks break no lines."""
    await topic(broker)
    texts = [b"123456789012345678901234567890", b"[" * 600 + b"]" * 600, b'{"a":\r\n1,\n"b":2}', b"not json"]
    for text in texts:
        headers = {"Braid-Header-Content-Type": "application/json"}
        (await broker.client.post(MESSAGES, content=text, headers=headers)).raise_for_status()
    answer = await broker.client.get(MESSAGES, headers={"accept": NDJSON})
    lines = answer.text.splitlines()
    assert len(lines) == 4
    assert '"value":123456789012345678901234567890' in lines[0]
    assert json.loads(lines[1])["value"] == json.loads(texts[1])
    assert json.loads(lines[2])["value"] == {"a": 1, "b": 2}
    assert json.loads(lines[3])["value"] == "not json"
    assert (await broker.client.get(MESSAGES)).json()["messages"] == [json.loads(line) for line in lines]


@pytest.mark.parametrize("kind", ["application/json", NDJSON])
@pytest.mark.parametrize("config", [{}, {"value_type": "json"}], ids=["binary", "json"])
async def test_no_number_changes_between_a_publish_and_a_read(
    broker: HttpBroker, kind: str, config: dict[str, str]
) -> None:
    await topic(broker, **config)
    values = ["18446744073709551616", '{"id":[-123456789012345678901,0.12345678901234567890]}', "1e-400", "1.5"]
    messages = [f'{{"value": {value}}}' for value in values]
    body = "\n".join(messages) if kind == NDJSON else f'{{"messages": [{",".join(messages)}]}}'
    answer = await broker.client.post(MESSAGES, content=body, headers={"content-type": kind})
    answer.raise_for_status()
    lines = (await broker.client.get(MESSAGES, headers={"accept": NDJSON})).text.splitlines()
    for value, line in zip(values, lines, strict=True):
        assert f'"value":{value},' in line


async def test_raw_bodies(broker: HttpBroker) -> None:
    await topic(broker)
    client = broker.client
    await client.post(f"{MESSAGES}?key=k%20ey", content=b"\x00\xff", headers={"Braid-Header-Trace": "abc"})
    await client.post(f"{MESSAGES}?key_base64=%2Fw%3D%3D", content=b"")
    await client.post(MESSAGES, content=gzip.compress(b"zipped"), headers={"content-encoding": "gzip"})
    await client.post(MESSAGES, content=b"<x/>", headers={"content-type": "application/xml; charset=utf-8"})
    found = (await browse(broker))["messages"]
    assert (found[0]["key"], found[0]["value_base64"], found[0]["headers"]) == ("k ey", "AP8=", {"trace": "abc"})
    assert (found[1]["key_base64"], found[1]["value"]) == ("/w==", "")
    assert [found[2]["value"], found[3]["value"]] == ["zipped", "<x/>"]


async def test_a_body_of_json_is_one_value_where_the_key_is_in_the_query(broker: HttpBroker) -> None:
    await topic(broker)

    async def post(query: str, body: bytes) -> None:
        headers = {"content-type": "application/json", "braid-header-trace": "7f"}
        (await broker.client.post(f"{MESSAGES}?{query}", content=body, headers=headers)).raise_for_status()

    await post("key=k", b'{"fare": 112.50}')
    await post("key_base64=%2Fw%3D%3D", b'"text"')
    await post("key=k&producer=p&sequence=1", b"null")
    answer = await broker.client.get(MESSAGES)
    found = {message.get("key") or message["key_base64"]: message for message in answer.json()["messages"]}
    assert '"value":{"fare":112.50},"headers":{"trace":"7f","content-type":"application/json"}' in answer.text
    assert (found["/w=="]["value"], found["/w=="]["headers"]) == ("text", {"trace": "7f"})
    assert values(answer.json()) == [{"fare": 112.5}, "text", None]


async def test_arrow_there_and_back(broker: HttpBroker) -> None:
    await topic(broker, segments=4)
    count = 1000
    table = pa.table(
        {
            "key": pa.array([f"k{n % 50}" for n in range(count)], pa.large_string()),
            "value": pa.array([b"%d" % n if n % 7 else None for n in range(count)], pa.large_binary()),
            "headers": pa.array(
                [[("n", b"%d" % n)] if n % 3 else None for n in range(count)], pa.map_("string", "binary")
            ),
            "event_time": pa.array([n * 1000 if n % 5 else None for n in range(count)], pa.timestamp("ns")),
        }
    )
    answer = await broker.client.post(MESSAGES, content=stream(table), headers={"content-type": ARROW})
    positions = answer.raise_for_status().json()["positions"]
    assert [p["segment"] for p in positions] == sorted(p["segment"] for p in positions)
    assert sum(p["count"] for p in positions) == count
    marker, rows = None, []
    while page := await _arrow_page(broker, marker):
        marker, table_page = page
        rows += table_page.to_pylist()
    assert len(rows) == count
    for segment, end in (await broker.end_offsets("t")).items():
        assert [row["_offset"] for row in rows if row["segment"] == segment] == list(range(end))
    sent = [
        (row["key"].encode(), row["value"], row["headers"], None if row["event_time"] is None else n)
        for n, row in enumerate(table.to_pylist())
    ]
    read = [
        (row["key"], row["value"], row["headers"], None if row["event_time"] is None else row["event_time"].microsecond)
        for row in rows
    ]
    assert sorted(read, key=repr) == sorted(sent, key=repr)
    for key in {row[0] for row in sent}:
        assert [row for row in read if row[0] == key] == [row for row in sent if row[0] == key]


async def _arrow_page(broker: HttpBroker, marker: str | None) -> tuple[str, pa.Table] | None:
    params = {"limit": 130} | ({"marker": marker} if marker else {})
    answer = await broker.client.get(MESSAGES, params=params, headers={"accept": ARROW})
    table = pa.ipc.open_stream(answer.raise_for_status().content).read_all()
    return (answer.headers["braid-marker"], table) if table.num_rows else None


async def test_ndjson_there_and_back(broker: HttpBroker) -> None:
    await topic(broker)
    body = b'{"value": 1}\n\n  \r\n{"value": "two", "key": "k"}\r\n'
    await broker.client.post(MESSAGES, content=body, headers={"content-type": f"{NDJSON}; charset=utf-8"})
    answer = await broker.client.get(MESSAGES, params={"limit": 1}, headers={"accept": NDJSON})
    assert [json.loads(line)["value"] for line in answer.text.splitlines()] == [1]
    rest = await browse(broker, marker=answer.headers["braid-marker"])
    assert values(rest) == ["two"]


async def test_nothing_published_is_no_error(broker: HttpBroker) -> None:
    await topic(broker)
    empty = pa.table({"value": pa.array([], pa.binary())})
    for kind, body in [("application/json", b'{"messages": []}'), (NDJSON, b""), (ARROW, stream(empty))]:
        answer = await broker.client.post(MESSAGES, content=body, headers={"content-type": kind})
        assert answer.json() == {"positions": []}
    page = await browse(broker)
    assert page["messages"] == []
    assert await browse(broker, marker=page["marker"]) == page


async def test_string_and_json_topics(broker: HttpBroker) -> None:
    await topic(broker, key_type="string", value_type="json")
    await publish(broker, {"a": 1}, "[1, 2]", None, 5)
    await broker.client.post(f"{MESSAGES}?key=k", content=b"[true]")
    page = await browse(broker)
    assert values(page) == [{"a": 1}, "[1, 2]", None, 5, [True]]
    assert [message["headers"] for message in page["messages"]] == [{}] * 5


# -- segments and files ----------------------------------------------------------------------------------------


async def test_segment_by_offset(broker: HttpBroker) -> None:
    await topic(broker)
    await publish(broker, *range(10))
    path = "/v1/topics/t/segments/0/messages"
    page = (await broker.client.get(path, params={"offset": 3, "limit": 4})).json()
    assert values(page) == [3, 4, 5, 6]
    assert {name: page[name] for name in ("next_offset", "end_offset", "sealed")} == {
        "next_offset": 7,
        "end_offset": None,
        "sealed": False,
    }
    answer = await broker.client.get(path, params={"offset": 10}, headers={"accept": ARROW})
    assert answer.headers["braid-next-offset"] == "10"
    assert "braid-end-offset" not in answer.headers
    await broker.broker.executor.give_successors("t", [0], "roll")
    answer = await broker.client.get(path, params={"offset": 8, "wait": 30}, headers={"accept": NDJSON})
    assert (answer.headers["braid-next-offset"], answer.headers["braid-end-offset"]) == ("10", "10")
    page = (await broker.client.get(path, params={"offset": 10, "wait": 30})).json()
    assert page == {"messages": [], "next_offset": 10, "end_offset": 10, "sealed": True}


async def test_files_are_the_log(tmp_path: Path) -> None:
    async with http_broker(LocalStore(tmp_path / "data", clock=SystemClock())) as broker:
        await topic(broker, segments=3)
        for n in range(5):
            await publish(broker, *range(n * 10, n * 10 + 10))
        await broker.broker.executor.give_successors("t", [0, 1], "roll")
        await publish(broker, *range(50, 60))
        listed: list[dict[str, Any]] = []
        after = None
        while True:
            params = {"limit": 2} | ({"after": after} if after else {})
            page = (await broker.client.get("/v1/topics/t/files", params=params)).raise_for_status().json()
            listed += page["files"]
            after = page["next"]
            if after is None:
                break
        assert [f["uri"] for f in listed] == sorted({f["uri"] for f in listed}, key=[f["uri"] for f in listed].index)
        rows = []
        for file in listed:
            table = pq.read_table(file["uri"].removeprefix("file://"))
            assert table["_offset"].to_pylist() == list(range(file["base_offset"], file["end_offset"]))
            assert table.num_rows == file["count"]
            rows += table["value"].to_pylist()
        assert sorted(int(value) for value in rows) == list(range(60))
        one_page = (await broker.client.get("/v1/topics/t/files")).json()
        assert one_page == {"files": listed, "next": None}
        latest = (await broker.client.get("/v1/topics/t/files", params={"from": "latest"})).json()
        assert latest == {"files": [], "next": None}


# -- places to begin -------------------------------------------------------------------------------------------


async def test_from_a_time() -> None:
    clock = ManualClock()
    async with http_broker(MemoryStore(clock=clock), clock=clock) as broker:
        await topic(broker, segments=2)
        times = []
        for n in range(6):
            times.append(datetime.fromtimestamp(clock.now_us() / 1e6, UTC).isoformat())
            await publish(broker, 2 * n, 2 * n + 1)
            if n == 2:
                await broker.broker.executor.give_successors("t", [0, 1], "roll")
            await clock.advance(10)
        for n, time in enumerate(times):
            assert values(await browse(broker, **{"from": time})) == list(range(2 * n, 12))
        await clock.advance(100)
        later = datetime.fromtimestamp(clock.now_us() / 1e6, UTC).isoformat()
        assert values(await browse(broker, **{"from": later})) == []
        assert values(await browse(broker, **{"from": "0001-01-01T00:00:00Z"})) == list(range(12))
        assert values(await browse(broker, **{"from": "earliest"})) == list(range(12))
        latest = await browse(broker, **{"from": "latest"})
        assert latest["messages"] == []
        await publish(broker, "new")
        assert values(await browse(broker, marker=latest["marker"])) == ["new"]


async def test_order_survives_a_clock_that_runs_back() -> None:
    """A successor's messages may carry earlier times than its predecessor's; they still come later."""

    class Watch(ManualClock):
        def set_back(self, seconds: float) -> None:
            self._now_us -= int(seconds * 1e6)

    clock = Watch()
    async with http_broker(MemoryStore(), clock=clock) as broker:
        await topic(broker, segments=2)
        for n in range(4):
            await publish(broker, n, key="k")
        await broker.broker.executor.give_successors("t", [0, 1], "roll")
        clock.set_back(3)
        for n in range(4, 8):
            await publish(broker, n, key="k")
        assert values(await browse(broker)) == list(range(8))


async def test_position_older_than_what_is_kept() -> None:
    clock = ManualClock()
    settings = {"maintenance_interval": 5, "report_interval": 60, "grace": 1}
    async with http_broker(MemoryStore(clock=clock), clock=clock, **settings) as broker:
        await topic(broker, retention={"seconds": 60})
        await publish(broker, "old")
        first = (await browse(broker, limit=1, **{"from": "earliest"}))["messages"][0]
        start = (await browse(broker, max_bytes=1, **{"from": "0001-01-01T00:00:00Z", "limit": 1}))["marker"]
        await publish(broker, "old too")
        await clock.advance(3600)
        await publish(broker, "new")
        async with asyncio.timeout(SECONDS):
            while (await broker.client.get("/v1/topics/t")).json()["segments"][0]["start_offset"] < 2:
                await clock.advance(5)
                await asyncio.sleep(0.01)
        problem = check_problem(
            await broker.client.get(MESSAGES, params={"marker": start}), 410, "position-expired", "older than what"
        )
        assert values(await browse(broker, marker=problem["earliest"])) == ["new"]
        for path in ("/v1/topics/t/subscribe", "/v1/topics/t/segments/0/messages"):
            params: dict[str, Any] = {"marker": start} if path.endswith("subscribe") else {"offset": 0}
            problem = check_problem(await broker.client.get(path, params=params), 410, "position-expired")
            assert values(await browse(broker, marker=problem["earliest"])) == ["new"]
        check_problem(await broker.client.get(f"{MESSAGES}/{first['id']}"), 404, "message-not-found", "any more")


# -- waiting ---------------------------------------------------------------------------------------------------


async def test_waiting_readers_are_woken_each_time(memory_broker: HttpBroker) -> None:
    """Three hundred messages, each waited for: one lost wake-up would cost twenty seconds."""
    await topic(memory_broker)
    marker = (await browse(memory_broker))["marker"]

    async def read() -> list[Any]:
        nonlocal marker
        found: list[Any] = []
        while len(found) < 300:
            page = await browse(memory_broker, marker=marker, wait=60)
            marker = page["marker"]
            found += values(page)
        return found

    async with asyncio.timeout(SECONDS):
        reader = asyncio.create_task(read())
        for n in range(300):
            await publish(memory_broker, n)
        assert await reader == list(range(300))


async def test_waiting_ends_after_its_time(memory_broker: HttpBroker) -> None:
    await topic(memory_broker)
    for path in (MESSAGES, "/v1/topics/t/segments/0/messages"):
        answer = await asyncio.wait_for(memory_broker.client.get(path, params={"wait": 0.05}), SECONDS)
        assert answer.json()["messages"] == []


async def test_waiting_goes_on_through_a_transition(memory_broker: HttpBroker) -> None:
    await topic(memory_broker, segments=2)
    await publish(memory_broker, "before")
    marker = (await browse(memory_broker))["marker"]
    waiting = asyncio.create_task(browse(memory_broker, marker=marker, wait=60))
    await memory_broker.broker.executor.give_successors("t", [0, 1], "roll")
    await publish(memory_broker, "after")
    page = await asyncio.wait_for(waiting, SECONDS)
    assert values(page) == ["after"]


async def test_waiting_ends_when_the_topic_is_deleted(memory_broker: HttpBroker) -> None:
    await topic(memory_broker)
    waiting = [
        asyncio.create_task(memory_broker.client.get(path, params={"wait": 60}))
        for path in (MESSAGES, "/v1/topics/t/segments/0/messages")
    ]
    await asyncio.wait(waiting, timeout=0.2)
    assert (await memory_broker.client.delete("/v1/topics/t")).status_code == 204
    for answer in await asyncio.wait_for(asyncio.gather(*waiting), SECONDS):
        check_problem(answer, 404, "topic-not-found")


async def test_waiting_ends_when_the_broker_drains(memory_broker: HttpBroker) -> None:
    await topic(memory_broker)
    waiting = asyncio.create_task(browse(memory_broker, wait=60))
    await asyncio.wait([waiting], timeout=0.2)
    await memory_broker.broker.drain()
    assert (await asyncio.wait_for(waiting, SECONDS))["messages"] == []
    client = memory_broker.client
    problem = check_problem(await client.post(MESSAGES, content=b"x"), 503, "draining")
    assert problem["retryable"]
    check_problem(await client.post("/v1/topics/t/uploads", json={"size": 1}), 503, "draining")
    check_problem(await client.put("/v1/topics/t/uploads/x", content=b"x"), 503, "draining")
    check_problem(await client.delete("/v1/topics/t"), 503, "draining")
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.get("/healthz")).status_code == 200


# -- topics ----------------------------------------------------------------------------------------------------


async def test_topics_come_and_go(broker: HttpBroker) -> None:
    client = broker.client
    created = await client.put("/v1/topics/b", json={"segments": 2, "retention": {"seconds": 60}})
    assert created.status_code == 201
    document = created.json()
    assert document["topic"] == "b"
    assert [s["range"] for s in document["segments"]] == [[0, 32768], [32768, 65536]]
    assert document["config"]["retention"] == {"seconds": 60.0, "bytes": None}
    changed = await client.put("/v1/topics/b", json={"retention": {"bytes": 10**9}})
    assert changed.status_code == 200
    assert changed.json()["config"]["retention"] == {"seconds": 60.0, "bytes": 10**9}
    assert changed.json()["version"] == document["version"] + 1
    assert (await client.put("/v1/topics/b")).json()["version"] == document["version"] + 1
    for name in ("a", "c"):
        assert (await client.put(f"/v1/topics/{name}")).status_code == 201
    first = (await client.get("/v1/topics", params={"limit": 2})).json()
    assert [t["topic"] for t in first["topics"]] == ["a", "b"]
    assert first["topics"][1]["segments"] == 2
    rest = (await client.get("/v1/topics", params={"after": first["next"]})).json()
    assert ([t["topic"] for t in rest["topics"]], rest["next"]) == (["c"], None)
    assert (await client.delete("/v1/topics/b")).status_code == 204
    check_problem(await client.delete("/v1/topics/b"), 404, "topic-not-found")
    assert [t["topic"] for t in (await client.get("/v1/topics")).json()["topics"]] == ["a", "c"]
    again = (await client.put("/v1/topics/b", json={"key_type": "string"})).json()
    assert [s["segment"] for s in again["segments"]] == [2]


async def test_marker_of_a_topic_that_was_created_again(memory_broker: HttpBroker) -> None:
    await topic(memory_broker)
    await publish(memory_broker, "first life")
    marker = (await browse(memory_broker))["marker"]
    await memory_broker.client.delete("/v1/topics/t")
    await topic(memory_broker)
    await publish(memory_broker, "second life")
    problem = check_problem(
        await memory_broker.client.get(MESSAGES, params={"marker": marker}), 410, "position-expired"
    )
    assert values(await browse(memory_broker, marker=problem["earliest"])) == ["second life"]


async def test_cluster_route_probes_and_metrics(broker: HttpBroker) -> None:
    await topic(broker, segments=2)
    client = broker.client
    route = (await client.get("/v1/topics/t/route")).json()
    assert [s["range"] for s in route["segments"]] == [[0, 32768], [32768, 65536]]
    assert route["segments"][0]["owner"] == {"broker": broker.broker.id, "url": broker.url}
    cluster = (await client.get("/v1/cluster")).json()
    assert cluster["leader"] == cluster["brokers"][0]["broker"] == broker.broker.id
    assert cluster["transitions"] == []
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {"ready": True, "status": "ok", "problems": []}
    assert (await client.get("/livez")).json() == {"status": "ok"}
    await publish(broker, 1, 2)
    metrics = (await client.get("/metrics")).text
    assert 'braidmq_messages_stored_total{topic="t"} 2.0' in metrics
    assert (await client.get("/docs")).status_code == 200
    assert "/v1/topics/{topic}/messages" in (await client.get("/openapi.json")).json()["paths"]


async def test_many_that_ask_for_the_cluster_share_a_listing_and_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[Counter[str]] = []

    def counted(states: Iterable[TopicState]) -> Counter[str]:
        counts.append(owned(states))
        return counts[-1]

    monkeypatch.setattr("mq.administration.segment_counts.owned", counted)
    store = CountingStore()
    async with http_broker(store) as broker:
        await topic(broker)
        store.listings = 0
        answers = await asyncio.gather(*(broker.client.get("/v1/cluster") for _ in range(50)))
        assert [answer.json()["brokers"][0]["segments"] for answer in answers] == [1] * 50
        assert store.listings <= 5 and len(counts) <= 5


async def test_the_cluster_is_told_of_while_the_store_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.administration.segment_counts.COUNT_SECONDS", 0.01)
    store = CountingStore()
    async with http_broker(store) as broker:
        await topic(broker)
        store.silent = True
        answers = await asyncio.gather(*(broker.client.get("/v1/cluster") for _ in range(2)))
        assert [answer.json()["brokers"][0]["segments"] for answer in answers] == [1, 1]


class CountingStore(MemoryStore):
    """Counts how often its folders are listed; while it is `silent` it never answers that."""

    listings = 0
    silent = False

    async def list_folders(self, prefix: str) -> Sequence[str]:
        self.listings += 1
        if self.silent:
            await asyncio.Future()
        return await super().list_folders(prefix)


async def test_base64_of_large_values(broker: HttpBroker) -> None:
    """Large enough to be decoded and rendered on threads."""
    await topic(broker)
    data = [bytes([n]) * 20_000 for n in range(250)]
    lines = [json.dumps({"value_base64": base64.b64encode(d).decode()}) for d in data]
    await broker.client.post(MESSAGES, content="\n".join(lines), headers={"content-type": NDJSON})
    found: list[bytes] = []
    marker = None
    while len(found) < len(data):
        page = await browse(broker, limit=1000, **({"marker": marker} if marker else {}))
        marker = page["marker"]
        found += [
            base64.b64decode(m["value_base64"]) if "value_base64" in m else m["value"].encode()
            for m in page["messages"]
        ]
    assert found == data


async def test_readers_who_waited_for_the_same_message_go_on_one_after_the_other(
    broker: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once they would hold up everybody else for the work of all of them."""
    read, polls, number, ended = TopicReader.read, 20, 0, False
    rounds: list[int] = []

    async def noted(self: TopicReader, *args: Any, **named: Any) -> Any:
        rounds.append(number)
        return await read(self, *args, **named)

    def count() -> None:
        nonlocal number
        number += 1
        if not ended:
            asyncio.get_running_loop().call_soon(count)

    await topic(broker)
    monkeypatch.setattr(TopicReader, "read", noted)
    waiting = [asyncio.create_task(browse(broker, wait=SECONDS)) for _ in range(polls)]
    while len(rounds) < polls:
        await asyncio.sleep(0.001)
    rounds.clear()
    count()
    try:
        await publish(broker, "news")
        pages = await asyncio.wait_for(asyncio.gather(*waiting), SECONDS)
    finally:
        ended = True
    assert [values(page) for page in pages] == [["news"]] * polls
    assert len(rounds) == len(set(rounds)) == polls
