"""Issue 2, item 10, line by line: each a 4xx that says what would be right, and nothing of the request stored."""

import base64
import hashlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pyarrow as pa
import pytest

from filer import keys
from filer.clock import ManualClock
from filer.stores.memory_store import MemoryStore
from filer.topic.positions import to_marker
from filer.topic.topic_state import TopicState
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.raw_socket import frame, raw_socket

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
DAY_SECONDS = 86_400
MESSAGES = "/v1/topics/t/messages"


@pytest.fixture
async def topic(broker: HttpBroker) -> AsyncIterator[HttpBroker]:
    """A broker with topic `t` of two segments, in which no message may have been added at the end."""
    await broker.client.put("/v1/topics/t", json={"segments": 2})
    await broker.client.post(MESSAGES, json={"messages": [{"key": str(n), "value": n} for n in range(10)]})
    before = await broker.end_offsets("t")
    yield broker
    assert await broker.end_offsets("t") == before


UNKNOWN_TOPIC = [
    ("GET", "/v1/topics/nothing"),
    ("GET", "/v1/topics/nothing/route"),
    ("GET", "/v1/topics/nothing/files"),
    ("GET", "/v1/topics/nothing/messages"),
    ("POST", "/v1/topics/nothing/messages"),
    ("GET", "/v1/topics/nothing/messages/0-0"),
    ("GET", "/v1/topics/nothing/segments/0/messages"),
    ("GET", "/v1/topics/nothing/subscribe"),
    ("POST", "/v1/topics/nothing/uploads"),
    ("PUT", "/v1/topics/nothing/uploads/x"),
]


async def test_unknown_topic(broker: HttpBroker) -> None:
    for method, path in UNKNOWN_TOPIC:
        check_problem(await broker.client.request(method, path), 404, "topic-not-found", "PUT /v1/topics/nothing")
    answer = await broker.client.delete("/v1/topics/nothing")
    check_problem(answer, 404, "topic-not-found")
    # Nobody who deletes one wants to create it.
    assert answer.json()["detail"] == "there is no topic 'nothing'"


BAD_NAMES = [
    "a b",
    "ü",
    "日本",
    "%00",
    "a%0a",
    "x" * 201,
    "x" * 300,
    "...%20",
    "a;b",
    "a:b",
    "~",
    "*",
    ".hidden",
    "...",
]


async def test_bad_names(broker: HttpBroker) -> None:
    for name in BAD_NAMES:
        for method, rest in [("PUT", ""), ("GET", ""), ("POST", "/messages"), ("GET", "/messages")]:
            answer = await broker.client.request(method, f"/v1/topics/{name}{rest}", content=b"{}")
            check_problem(answer, 422, "invalid-name", keys.NAME_RULE)
    assert (await broker.client.get("/v1/topics")).json()["topics"] == []


NAMING: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "/v1/topic-groups/{}", {"topics": ["a"]}),
    ("GET", "/v1/topic-groups/{}", {}),
    ("PUT", "/v1/topic-groups/g", {"topics": ["{}"]}),
    ("PUT", "/v1/topics/t/groups/q", {"dead_letter": {"topic": "{}"}}),
    ("DELETE", "/v1/topics/{}", {}),
    ("POST", "/v1/topics/{}/uploads", {"size": 1}),
    ("GET", "/v1/topics/{}/files", {}),
    ("GET", "/v1/topics/{}/verification", {}),
    ("GET", "/v1/topics/{}/subscribe", {}),
    ("POST", "/v1/topics/{}/groups/q/claims", {}),
]


async def test_a_name_that_cannot_be_stored_is_no_trouble_of_the_store(topic: HttpBroker) -> None:
    """Wherever it is given, and however often: a token that may read would take the broker out of rotation."""
    name, began = ".hidden", topic.broker.clock.monotonic_seconds()
    while topic.broker.clock.monotonic_seconds() < began + 1.6:
        for method, path, body in NAMING:
            given = json.loads(json.dumps(body).replace("{}", name) if body else "{}")
            answer = await topic.client.request(method, path.replace("{}", name), **({"json": given} if body else {}))
            check_problem(answer, 422, "invalid-name", "cannot name")
    told = (await topic.client.get("/readyz")).raise_for_status().json()
    assert told == {"ready": True, "status": "ok", "problems": []}


CLIMBING = ["..", ".", "%2e%2e", "..%2f..%2fx", "a%2Fb"]


async def test_paths_that_climb(broker: HttpBroker) -> None:
    """Sent as they are: the client would tidy them up."""
    for method, name, rest in itertools.product(("PUT", "POST", "GET"), CLIMBING, ("", "/messages")):
        headers = "Host: localhost\r\nConnection: close\r\nContent-Length: 2"
        head = f"{method} /v1/topics/{name}{rest} HTTP/1.1\r\n{headers}\r\n\r\n"
        answer = await broker.raw(head.encode() + b"{}")
        status = int(answer.split()[1])
        assert status in (404, 405, 422), answer
        assert b"application/problem+json" in answer
        if status != 405:
            assert keys.NAME_RULE.encode() in answer
    assert (await broker.client.get("/v1/topics")).json()["topics"] == []


async def test_empty_names_and_slashes(broker: HttpBroker) -> None:
    paths = ("/v1/topics/", "/v1/topics//messages", "/v1/topics/a/b")
    for method, path in itertools.product(("PUT", "GET", "POST"), paths):
        check_problem(await broker.client.request(method, path, content=b"{}"), 404, "not-found", keys.NAME_RULE)


async def test_a_word_of_a_path_that_is_nearly_right(broker: HttpBroker) -> None:
    for path, word in (("/message", "messages"), ("/subscribers", "subscribe"), ("/segment/0/split", "segments")):
        answer = await broker.client.get(f"/v1/topics/t{path}")
        check_problem(answer, 404, "not-found", f"no such path: /v1/topics/t{path} (did you mean {word!r}?); see /docs")
    answer = await broker.client.put("/v1/topics/t/messages")
    check_problem(answer, 405, "method-not-allowed", "does not take PUT, but GET, POST")


def line(document: Any) -> bytes:
    return orjson.dumps(document)


TWICE = [b'{"messages": [{"value": {"a": 1, "a": 2}}]}', b'{"messages": [{"value": 1, "value": 2}]}']
BROKEN_JSON = [
    *TWICE,
    b"",
    b"{",
    b'{"messages": [',
    b"\xff\xfe",
    b'{"messages": [{"value": NaN}]}',
    b"[" * 5000,
    b'"\\ud800"',
]


async def test_broken_json(topic: HttpBroker) -> None:
    for body in BROKEN_JSON:
        answer = await topic.client.post(MESSAGES, content=body, headers={"content-type": "application/json"})
        check_problem(answer, 400, "invalid-request", "not valid JSON")


BAD_MESSAGES: list[tuple[Any, str]] = [
    ([], "an object"),
    ("text", "an object"),
    (None, "an object"),
    ({}, "one of value, value_base64 and ref"),
    ({"key": "k"}, "one of value, value_base64 and ref"),
    ({"value": 1, "value_base64": "aa=="}, "not value and value_base64"),
    ({"value": 1, "ref": {"upload": "x"}}, "not value and ref"),
    ({"valeu": 1}, "did you mean 'value'?"),
    ({"value": 1, "topic": "t"}, "unknown field 'topic'"),
    ({"value": 1, "key": 5}, "a key must be a string"),
    ({"value": 1, "key": "a", "key_base64": "YQ=="}, "not both"),
    ({"value": 1, "key_base64": "not base64!"}, "not valid base64"),
    ({"value": 1, "key_base64": "YQ"}, "padding"),
    ({"value": 1, "key_base64": 7}, "a string of base64"),
    ({"value_base64": "a-_="}, "standard alphabet"),
    ({"value_base64": "é"}, "not valid base64"),
    ({"value_base64": None}, "a string of base64"),
    ({"value": 1, "headers": ["a"]}, "an object of strings"),
    ({"value": 1, "headers": {"a": 1}}, "header 'a'"),
    ({"value": 1, "headers": {"a": {"base64": "?"}}}, "not valid base64"),
    ({"value": 1, "headers": {"a": {"base46": "YQ=="}}}, '{"base64"'),
    ({"value": 1, "event_time": 5}, "RFC 3339"),
    ({"value": 1, "event_time": "2026-01-31"}, "RFC 3339"),
    ({"value": 1, "event_time": "2026-01-31T12:00:00"}, "with an offset"),
    ({"value": 1, "event_time": "2026-02-30T12:00:00Z"}, "RFC 3339"),
    ({"value": 1, "event_time": "9999-12-31T23:59:59-23:59"}, "RFC 3339"),
    ({"value": 1, "event_time": "0001-01-01T00:00:00+23:59"}, "RFC 3339"),
    ({"ref": "id"}, '{"upload": id}'),
    ({"ref": {}}, "lacks 'upload'"),
    ({"ref": {"uplaod": "x"}}, "did you mean 'upload'?"),
    ({"ref": {"upload": 5}}, "ref.upload"),
    ({"ref": {"upload": "x", "size": True}}, "ref.size"),
    ({"ref": {"upload": "x", "size": 1.5}}, "ref.size"),
    ({"ref": None}, "an object"),
]


async def test_bad_messages(topic: HttpBroker) -> None:
    good = {"value": "good"}
    for bad, part in BAD_MESSAGES:
        answer = await topic.client.post(MESSAGES, json={"messages": [good, bad, good]})
        check_problem(answer, 422, "invalid-request", "messages[1]", part)
        lines = b"\n".join([line(good), b"", line(bad), line(good)])
        answer = await topic.client.post(MESSAGES, content=lines, headers={"content-type": NDJSON})
        check_problem(answer, 422, "invalid-request", "line 3", part)


async def test_value_too_deep_to_be_written(topic: HttpBroker) -> None:
    deep = b'{"value":' + b"[" * 500 + b"]" * 500 + b"}"
    answer = await topic.client.post(MESSAGES, content=deep, headers={"content-type": NDJSON})
    check_problem(answer, 422, "invalid-request", "line 1", "nested too deeply")


BAD_DOCUMENTS: list[tuple[Any, str]] = [
    ([], '{"messages": [...]}'),
    ({}, '{"messages": [...]}'),
    ({"messages": {}}, '{"messages": [...]}'),
    ({"at": "Wien"}, "with ?key=… in the address it is the value of one message"),
    ({"messages": [], "mesages": []}, "did you mean 'messages'?"),
    ({"messages": [], "producer": "p"}, "unknown field 'producer'"),
]


async def test_bad_documents(topic: HttpBroker) -> None:
    for body, part in BAD_DOCUMENTS:
        check_problem(await topic.client.post(MESSAGES, json=body), 422, "invalid-request", part)


@pytest.mark.parametrize("size", [10, 5_000])
async def test_bad_line_in_the_middle(topic: HttpBroker, size: int) -> None:
    """Small bodies are decoded on the spot, large ones on a thread."""
    lines = [line({"value": n}) for n in range(size)]
    lines[size // 2] = b'{"value": '
    answer = await topic.client.post(MESSAGES, content=b"\n".join(lines), headers={"content-type": NDJSON})
    check_problem(answer, 400, "invalid-request", f"line {size // 2 + 1}", "not valid JSON")


def stream(table: pa.Table, *, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for batch in table.to_batches(max_chunksize=5):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


async def publish_arrow(broker: HttpBroker, body: bytes) -> Any:
    return await broker.client.post(MESSAGES, content=body, headers={"content-type": ARROW})


async def test_truncated_arrow(topic: HttpBroker) -> None:
    body = stream(pa.table({"key": [b"%d" % n for n in range(20)], "value": [b"v" * n for n in range(20)]}))
    for length in [0, 1, 4, 8, *range(9, len(body), 41), *range(len(body) - 12, len(body))]:
        check_problem(await publish_arrow(topic, body[:length]), 400, "invalid-request", "Arrow IPC stream")


async def test_arrow_that_goes_on_behind_its_end(topic: HttpBroker) -> None:
    body = stream(pa.table({"value": [b"1"]}))
    check_problem(await publish_arrow(topic, body + b"more"), 400, "invalid-request", "end-of-stream")


def nested(values: list[Any], **fields: pa.DataType) -> pa.Array:
    return pa.array(values, pa.struct(list(fields.items())))


MAP_OF_NULLS = pa.array([[("a", None)]], pa.map_(pa.string(), pa.binary()))
TWICE = pa.StructArray.from_arrays(
    [pa.array(["a"]), pa.array(["b"])], fields=[pa.field("upload", pa.string()), pa.field("upload", pa.string())]
)
BAD_TABLES: list[tuple[Any, str]] = [
    ({"key": [b"1"]}, "lacks a column 'value'"),
    ({"value": [1]}, "column 'value' is of type int64"),
    ({"value": [1.5]}, "must be binary or string"),
    ({"value": pa.nulls(1)}, "column 'value' is of type null"),
    ({"value": [["a"]]}, "must be binary or string"),
    ({"value": [b"1"], "key": [1]}, "column 'key' is of type int64"),
    ({"value": [b"1"], "kye": [b"1"]}, "did you mean 'key'?"),
    ({"value": [b"1"], "_offset": [1]}, "unknown column '_offset'"),
    ({"value": pa.array(["a"]).dictionary_encode()}, "plain, not dictionary-encoded or view"),
    ({"value": [b"1"], "key": pa.array([b"a"], pa.binary()).dictionary_encode()}, "dictionary"),
    ({"value": pa.array(["a"], pa.string_view())}, "view"),
    ({"value": pa.array([b"a"], pa.binary_view())}, "view"),
    ({"value": pa.array([b"a"], pa.binary(1))}, "fixed_size_binary"),
    ({"value": [b"1"], "event_time": [5]}, "must be a timestamp"),
    ({"value": [b"1"], "event_time": ["2026-01-01T00:00:00Z"]}, "must be a timestamp"),
    ({"value": [b"1"], "event_time": pa.array([2**62], pa.timestamp("s"))}, "microseconds"),
    ({"value": [b"1"], "event_time": pa.array([2**62], pa.timestamp("us", "UTC"))}, "years 1 to 9999"),
    ({"value": [b"1"], "event_time": pa.array([-(2**62)], pa.timestamp("us", "UTC"))}, "years 1 to 9999"),
    ({"value": [b"1"], "headers": [b"x"]}, "map<string, binary>"),
    ({"value": [b"1"], "headers": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}, "map<string, binary>"),
    ({"value": [b"1"], "headers": MAP_OF_NULLS}, "a header without a value"),
    ({"value": pa.array([None], pa.binary()), "ref": ["x"]}, "struct<upload: string"),
    ({"value": pa.array([None], pa.binary()), "ref": [{"size": 1}]}, "struct<upload: string"),
    ({"value": pa.array([None], pa.binary()), "ref": [{"upload": "x", "sise": 1}]}, "did you mean 'size'?"),
    ({"value": pa.array([None], pa.binary()), "ref": [{"upload": "x", "size": "1"}]}, "must be int64"),
    ({"value": pa.array([None], pa.binary()), "ref": TWICE}, "two fields of the same name"),
    ({"value": pa.array([None], pa.binary()), "ref": nested([{"upload": None}], upload=pa.string())}, "no upload"),
    ({"value": [b"1"], "ref": [{"upload": "x"}]}, "a value or a ref, not both"),
]


async def test_wrong_columns(topic: HttpBroker) -> None:
    for columns, part in BAD_TABLES:
        answer = await publish_arrow(topic, stream(pa.table(columns)))
        check_problem(answer, 422, "invalid-request", part)


async def test_columns_of_the_same_name(topic: HttpBroker) -> None:
    table = pa.Table.from_arrays([pa.array([b"1"]), pa.array([b"2"])], names=["value", "value"])
    check_problem(await publish_arrow(topic, stream(table)), 422, "invalid-request", "two columns of the same name")


async def test_values_that_are_not_of_the_topics_type(memory_broker: HttpBroker) -> None:
    broker = memory_broker
    for kind in ("string", "json"):
        await broker.client.put(f"/v1/topics/{kind}", json={"value_type": kind, "key_type": "string"})
        path = f"/v1/topics/{kind}/messages"
        binary = base64.b64encode(b"\xff\xfe").decode()
        for message in ({"value_base64": binary}, {"value": "1", "key_base64": binary}):
            body = {"messages": [{"value": "1"}, message]}
            check_problem(await broker.client.post(path, json=body), 422, "invalid-request", "messages[1]")
        check_problem(await broker.client.post(path, content=b"\xff"), 422, "invalid-request", "the body")
        table = pa.table({"value": pa.array([b"1", b"\xff"], pa.binary())})
        answer = await broker.client.post(path, content=stream(table), headers={"content-type": ARROW})
        check_problem(answer, 422, "invalid-request", "'value'")
        assert await broker.end_offsets(kind) == {0: 0}
    answer = await broker.client.post("/v1/topics/json/messages", json={"messages": [{"value_base64": "bm8ganNvbg=="}]})
    check_problem(answer, 422, "invalid-request", "messages[0]", "must be JSON")


WRONG_HEADERS: list[tuple[list[tuple[str, str]], str]] = [
    ([("a", "1"), ("a", "2")], "'a' is given twice"),
    *(
        ([(name, value)], f"the header '{name}' must be an RFC 3339 time with an offset")
        for name in ("braid-deliver-at", "braid-expires-at")
        for value in ("garbage", "1770000000", "2026-01-31T12:00:00", "")
    ),
]


@pytest.mark.parametrize(("headers", "says"), WRONG_HEADERS)
async def test_headers_that_no_route_takes(
    memory_broker: HttpBroker, headers: list[tuple[str, str]], says: str
) -> None:
    """By Arrow, JSON, NDJSON, as one value, and as one JSON value."""
    client, path = memory_broker.client, "/v1/topics/h/messages"
    await client.put("/v1/topics/h", json={})
    schema = pa.map_(pa.string(), pa.binary())
    table = pa.table({"value": ["x"], "headers": pa.array([[(n, v.encode()) for n, v in headers]], schema)})
    body = '{{"value": "x", "headers": {{{}}}}}'.format(", ".join(f'"{name}": "{value}"' for name, value in headers))
    pairs = [(f"braid-header-{name}", value) for name, value in headers]
    twice = headers[0][0] == headers[-1][0] and len(headers) > 1
    json_says, json_slug = (f"the name '{headers[0][0]}' twice", 400) if twice else (says, 422)
    check_problem(
        await client.post(path, content=stream(table), headers={"content-type": ARROW}), 422, "invalid-request", says
    )
    for kind, content in (("application/json", f'{{"messages": [{body}]}}'), ("application/x-ndjson", body)):
        answer = await client.post(path, content=content, headers={"content-type": kind})
        check_problem(answer, json_slug, "invalid-request", json_says)
    raw = [("content-type", "text/plain"), *pairs]
    check_problem(await client.post(path, content=b"x", headers=raw), 422, "invalid-request", says)
    keyed = [("content-type", "application/json"), *pairs]
    check_problem(await client.post(f"{path}?key=k", content=b"1", headers=keyed), 422, "invalid-request", says)
    assert await memory_broker.end_offsets("h") == {0: 0}


async def test_reserved_headers_in_upper_case(memory_broker: HttpBroker) -> None:
    client, path = memory_broker.client, "/v1/topics/h/messages"
    await client.put("/v1/topics/h", json={})
    for wrong in ({"Braid-Deliver-At": "soon"}, {"Braid-Deliver-At": TIME, "braid-deliver-at": TIME}):
        answer = await client.post(path, json={"messages": [{"value": "x", "headers": wrong}]})
        check_problem(answer, 422, "invalid-request", "messages[0]", "eliver")
    answer = await client.post(path, json={"messages": [{"value": "x", "headers": {"BRAID-EXPIRES-AT": TIME}}]})
    assert answer.status_code == 200


TIME = "2999-01-31T12:00:00Z"


BAD_CONFIGS: list[tuple[Any, str]] = [
    ({"segmnets": 2}, "did you mean 'segments'?"),
    ({"retentoin": {}}, "did you mean 'retention'?"),
    ({"retention": {"second": 5}}, "did you mean 'retention.seconds'?"),
    ({"scaling": {"merge": {"times_targt": 1}}}, "did you mean 'scaling.merge.times_target'?"),
    ({"scaling": {"split": [{"times_target": 1, "for": 1}]}}, "scaling.split.0.for"),
    ({"retention": {"seconds": -1}}, "retention.seconds"),
    ({"retention": 5}, "retention"),
    ({"min_segments": "3"}, "min_segments"),
    ({"min_segments": True}, "min_segments"),
    ({"min_segments": 4, "max_segments": 2}, "above max_segments"),
    ({"segments": 0}, "between min_segments"),
    ({"segments": 2000}, "max_segments"),
    ({"segments": "2"}, "a whole number"),
    ({"acks": "all"}, "acks"),
    ({"acks": "replicated"}, "replicas"),
    ({"replicas": 2}, "at most 1"),
    ({"key_type": "int"}, "key_type"),
    ({"overflow": "ignore"}, "overflow"),
    ({"segment_bytes": 1e400}, "valid JSON"),
    ({"target": [[[]]]}, "target"),
    ({"x" * 50_000: 1}, "unknown setting 'xxx"),
]


async def test_bad_configurations(memory_broker: HttpBroker) -> None:
    for config, part in BAD_CONFIGS:
        answer = await memory_broker.client.put("/v1/topics/t", content=json.dumps(config))
        slug, status = ("invalid-request", 400) if part == "valid JSON" else ("invalid-config", 422)
        check_problem(answer, status, slug, part)
    check_problem(await memory_broker.client.get("/v1/topics/t"), 404, "topic-not-found")


async def test_what_is_refused_is_counted_by_its_reason(memory_broker: HttpBroker) -> None:
    client = memory_broker.client
    await client.post("/v1/topics/none/messages", content=b"x")
    (await client.put("/v1/topics/t")).raise_for_status()
    for content in (b"{", b"[", b'{"messages": []}'):
        await client.post("/v1/topics/t/messages", content=content, headers={"content-type": "application/json"})
    counted = [line for line in (await client.get("/metrics")).text.splitlines() if "publishes_refused_total{" in line]
    # The other reasons are there from the start, at 0.
    assert sorted(line for line in counted if not line.endswith(" 0.0")) == [
        'braidmq_publishes_refused_total{reason="invalid-request"} 2.0',
        'braidmq_publishes_refused_total{reason="topic-not-found"} 1.0',
    ]


async def test_configuration_nested_out_of_reach(memory_broker: HttpBroker) -> None:
    body = b'{"target": {"messages": ' + b"[" * 600 + b"]" * 600 + b"}}"
    check_problem(await memory_broker.client.put("/v1/topics/t", content=body), 422, "invalid-config")


async def test_configuration_that_cannot_change(topic: HttpBroker) -> None:
    for change in ({"value_type": "json"}, {"key_type": "string"}):
        check_problem(await topic.client.put("/v1/topics/t", json=change), 409, "topic-conflict")
    for segments in ("3", 1.5, True):
        check_problem(await topic.client.put("/v1/topics/t", json={"segments": segments}), 422, "invalid-config")


async def test_a_condition_that_topics_do_not_have(topic: HttpBroker) -> None:
    for condition in ('"7"', "", "*, *"):
        answer = await topic.client.put("/v1/topics/t", json={}, headers={"if-none-match": condition})
        check_problem(answer, 422, "invalid-request", "only *")


async def test_bad_configuration_bodies(memory_broker: HttpBroker) -> None:
    for body, status, slug in [
        (b"{", 400, "invalid-request"),
        (b"[]", 422, "invalid-request"),
        (b"5", 422, "invalid-request"),
        (b"\xff", 400, "invalid-request"),
        (b" " * 70_000, 413, "body-too-large"),
    ]:
        check_problem(await memory_broker.client.put("/v1/topics/t", content=body), status, slug)


BAD_QUERIES = [
    ("/v1/topics/t/segments/0/messages?offset=-1", "offset"),
    ("/v1/topics/t/segments/0/messages?offset=1e3", "offset"),
    (f"/v1/topics/t/segments/0/messages?offset={10**30}", "offset"),
    ("/v1/topics/t/segments/0/messages?offset=1000", "beyond the end"),
    ("/v1/topics/t/segments/0/messages?ofset=1", "did you mean 'offset'?"),
    ("/v1/topics/t/segments/x/messages", "segment"),
    ("/v1/topics/t/messages?limit=0", "limit"),
    ("/v1/topics/t/messages?limit=x", "limit"),
    ("/v1/topics/t/messages?max_bytes=0", "max_bytes"),
    ("/v1/topics/t/messages?wait=61", "wait"),
    ("/v1/topics/t/messages?wait=nan", "wait"),
    ("/v1/topics/t/messages?wait=-1", "wait"),
    ("/v1/topics/t/messages?market=x", "did you mean 'marker'?"),
    ("/v1/topics/t/messages?from=yesterday", "from must be earliest, latest, or an RFC 3339 time"),
    ("/v1/topics/t/messages?from=2026-01-01", "RFC 3339"),
    ("/v1/topics/t/subscribe?group=g", "unknown parameter 'group'"),
    ("/v1/topics/t/subscribe?from=now", "earliest, latest"),
    ("/v1/topics/t/files?after=x", "'next'"),
    ("/v1/topics/t/files?form=earliest", "did you mean 'from'?"),
    ("/v1/topics?limit=0", "limit"),
    ("/v1/topics?limit=5000", "limit"),
    ("/v1/cluster?verbose=1", "unknown parameter 'verbose'"),
]


async def test_bad_queries(topic: HttpBroker) -> None:
    for path, part in BAD_QUERIES:
        check_problem(await topic.client.get(path), 422, "invalid-request", part)


NO_IDS = ["x", "0", "0-", "-1", "0-0-0", "0--1", "0-x", "\u0663-1", "9" * 30 + "-1"]


async def test_message_ids_that_are_none(topic: HttpBroker) -> None:
    for message_id, rest in itertools.product(NO_IDS, ("", "/payload")):
        answer = await topic.client.get(f"{MESSAGES}/{message_id}{rest}")
        check_problem(answer, 422, "invalid-request", "<segment>-<offset>")


async def test_messages_that_are_not_there(topic: HttpBroker) -> None:
    for message_id, rest in itertools.product(["0-1000", "7-0", "999999-0"], ("", "/payload")):
        check_problem(await topic.client.get(f"{MESSAGES}/{message_id}{rest}"), 404, "message-not-found")


async def test_segment_that_is_not_there(topic: HttpBroker) -> None:
    for segment in (2, 10**15, -1):
        answer = await topic.client.get(f"/v1/topics/t/segments/{segment}/messages")
        check_problem(answer, 404, "segment-not-found")


async def test_bad_publish_parameters(topic: HttpBroker) -> None:
    client = topic.client
    check_problem(await client.post(f"{MESSAGES}?kye=a", content=b"x"), 422, "invalid-request", "did you mean 'key'?")
    check_problem(await client.post(f"{MESSAGES}?key=a&key=b", content=b"x"), 422, "invalid-request", "more than once")
    check_problem(await client.post(f"{MESSAGES}?key=a&key_base64=YQ%3D%3D", content=b"x"), 422, "invalid-request")
    check_problem(await client.post(f"{MESSAGES}?key_base64=%21", content=b"x"), 422, "invalid-request", "base64")
    check_problem(await client.post(f"{MESSAGES}?key=%ff", content=b"x"), 400, "invalid-request")
    check_problem(await client.post(f"{MESSAGES}?key", content=b"x"), 400, "invalid-request")
    check_problem(await client.post(f"{MESSAGES}?acks=all", content=b"x"), 422, "invalid-request", "'stored'")
    check_problem(await client.post(f"{MESSAGES}?acks=replicated", content=b"x"), 422, "invalid-request", "replicas")
    answer = await client.post(f"{MESSAGES}?key=a", json={"messages": [{"value": 1}]})
    check_problem(answer, 422, "invalid-request", "its own key")
    answer = await client.post(MESSAGES, json={"messages": [{"value": 1}]}, headers={"Braid-Header-A": "1"})
    check_problem(answer, 422, "invalid-request", "its own headers")


async def test_encodings_and_media_types(topic: HttpBroker) -> None:
    answer = await topic.client.post(MESSAGES, content=b"x", headers={"content-encoding": "br"})
    check_problem(answer, 415, "unsupported-media-type", "gzip")
    for body in (b"no gzip", b"", base64.b64decode("H4sIAAAAAAAAA0tMSgYAwkEkNQMAAAA=")[:-3]):
        answer = await topic.client.post(MESSAGES, content=body, headers={"content-encoding": "gzip"})
        check_problem(answer, 400, "invalid-request", "gzip")
    answer = await topic.client.get(MESSAGES, headers={"accept": "application/xml"})
    check_problem(answer, 415, "unsupported-media-type", "application/x-ndjson")
    answer = await topic.client.get("/v1/topics/t/subscribe", headers={"accept": ARROW})
    check_problem(answer, 415, "unsupported-media-type", "text/event-stream")


async def test_forged_markers(topic: HttpBroker) -> None:
    good = (await topic.client.get(MESSAGES)).json()["marker"]
    other = to_marker("other", {0: 0, 1: 0})
    forged = ["", "x", "AAAA", "é", good[:-2], good + "AAAA", "%%", "A" * 5000, other, to_marker("t", {})]
    forged += [to_marker("t", p) for p in ({0: 10**6, 1: 0}, {0: 0}, {1: 0}, {0: 0, 1: 0, 7: 0}, {0: 2**69, 1: 0})]
    for marker in forged:
        answer = await topic.client.get(MESSAGES, params={"marker": marker})
        check_problem(answer, 400, "invalid-marker")
        answer = await topic.client.get("/v1/topics/t/subscribe", params={"marker": marker})
        check_problem(answer, 400, "invalid-marker")
    answer = await topic.client.get(MESSAGES, params={"marker": good, "from": "earliest"})
    check_problem(answer, 422, "invalid-request", "not both")
    answer = await topic.client.get("/v1/topics/t/subscribe", params={"marker": good, "from": "latest"})
    check_problem(answer, 422, "invalid-request", "not both")


async def test_marker_that_is_too_long(topic: HttpBroker) -> None:
    """uvicorn takes a request line of up to 64 KiB; what passes that is ours to refuse."""
    answer = await topic.client.get(MESSAGES, params={"marker": "A" * 60_000})
    check_problem(answer, 400, "invalid-marker")


async def test_methods(topic: HttpBroker) -> None:
    for method, path in [
        ("PATCH", "/v1/topics/t"),
        ("DELETE", MESSAGES),
        ("PUT", MESSAGES),
        ("POST", "/v1/topics"),
        ("GET", "/v1/topics/t/uploads/x"),
        ("POST", "/v1/cluster"),
    ]:
        answer = await topic.client.request(method, path)
        assert answer.status_code in (404, 405)
        check_problem(answer, answer.status_code, "method-not-allowed" if answer.status_code == 405 else "not-found")
    assert "GET" in (await topic.client.request("PATCH", "/v1/topics/t")).headers["allow"]


# -- references ------------------------------------------------------------------------------------------------


async def issue(broker: HttpBroker, topic: str = "t", **fields: Any) -> dict[str, Any]:
    answer = await broker.client.post(f"/v1/topics/{topic}/uploads", json={"size": 4, **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def put(broker: HttpBroker, upload: dict[str, Any], data: bytes = b"data") -> dict[str, Any]:
    answer = await broker.client.put(upload["url"], content=data)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def refused(broker: HttpBroker, ref: dict[str, Any], *parts: str) -> None:
    """By JSON, NDJSON and Arrow alike."""
    bodies = {
        "application/json": line({"messages": [{"value": "good"}, {"ref": ref}]}),
        NDJSON: line({"value": "good"}) + b"\n" + line({"ref": ref}),
        ARROW: stream(pa.table({"value": pa.array([b"good", None], pa.binary()), "ref": [None, ref]})),
    }
    for kind, body in bodies.items():
        answer = await broker.client.post(MESSAGES, content=body, headers={"content-type": kind})
        check_problem(answer, 422, "invalid-reference", *parts)


async def test_bad_references(topic: HttpBroker) -> None:
    await topic.client.put("/v1/topics/other")
    missing = await issue(topic)
    await refused(topic, {"upload": missing["upload"]}, "has not arrived")
    elsewhere = await issue(topic, "other")
    await put(topic, elsewhere)
    await refused(topic, {"upload": elsewhere["upload"]}, "not issued for topic 't'")
    for outside in ("x", "../topic.json", "../../other/topic.json", "s3://bucket/key", "", elsewhere["url"], "a" * 999):
        await refused(topic, {"upload": outside}, "not issued for topic 't'", "POST /v1/topics/t/uploads")
    upload = await issue(topic, sha256=hashlib.sha256(b"data").hexdigest())
    stored = await put(topic, upload)
    ulid, size, digest, mac = upload["upload"].split(".")
    await refused(topic, {"upload": f"{ulid}.5.{digest}.{mac}"}, "not issued")
    await refused(topic, {"upload": f"{ulid}.{size}..{mac}"}, "not issued")
    await refused(topic, {"upload": f"{ulid}.{size}.{digest}.{mac[:-1]}{'Q' if mac[-1] == 'A' else 'A'}"}, "not issued")
    await refused(topic, {"upload": upload["upload"], "size": 5}, "size is 4, not 5")
    await refused(topic, {"upload": upload["upload"], "size": -4}, "size is 4, not -4")
    await refused(topic, {"upload": upload["upload"], "etag": "wrong"}, "etag is " + stored["etag"])
    await refused(topic, {"upload": upload["upload"], "sha256": "0" * 64}, "sha256 is")


async def test_expired_upload() -> None:
    clock = ManualClock()
    async with http_broker(
        MemoryStore(clock=clock), clock=clock, grace=30 * DAY_SECONDS, report_interval=3600
    ) as broker:
        await broker.client.put("/v1/topics/t")
        early, late = await issue(broker), await issue(broker)
        await put(broker, early)
        await clock.leap(DAY_SECONDS + 1)
        check_problem(await broker.client.put(late["url"], content=b"data"), 422, "invalid-reference", "has expired")
        await refused(broker, {"upload": early["upload"]}, "has expired")
        assert await broker.end_offsets("t") == {0: 0}


BAD_UPLOADS = [
    (b"{", 400, "invalid-request", "not valid JSON"),
    (b"", 400, "invalid-request", "not valid JSON"),
    (b"\xff", 400, "invalid-request", "not valid JSON"),
    (b'{"size": NaN}', 400, "invalid-request", "not valid JSON"),
    (b"[]", 422, "invalid-request", '{"size": bytes'),
    (b"{}", 422, "invalid-request", "size"),
    (b'{"size": -1}', 422, "invalid-request", "size"),
    (b'{"size": "1"}', 422, "invalid-request", "size"),
    (b'{"size": 1.0}', 422, "invalid-request", "size"),
    (b'{"size": true}', 422, "invalid-request", "size"),
    (b'{"size": 1, "sha256": "abc"}', 422, "invalid-request", "sha256"),
    (b'{"size": 1, "sha": "abc"}', 422, "invalid-request", "did you mean 'sha256'?"),
    (b'{"size": 99999999999999}', 413, "body-too-large", "at most"),
    (b'{"size": 1, "x": "' + b"x" * 70_000 + b'"}', 413, "body-too-large", "65536"),
]


async def test_bad_upload_requests(memory_broker: HttpBroker) -> None:
    await memory_broker.client.put("/v1/topics/t")
    for body, status, slug, part in BAD_UPLOADS:
        check_problem(await memory_broker.client.post("/v1/topics/t/uploads", content=body), status, slug, part)


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "Multipart/Form-Data; boundary=x", "multipart/form-data"]
)
async def test_a_form_is_refused_before_its_body_is_read(topic: HttpBroker, content_type: str) -> None:
    """curl declares each body as a form, so that an envelope would be stored as a value."""
    envelope = b'{"messages": [{"value": 1}]}'
    for address in (MESSAGES, f"{MESSAGES}?key=k"):
        answer = await topic.client.post(address, content=envelope, headers={"content-type": content_type})
        check_problem(answer, 415, "unsupported-media-type", "content-type: application/json")


@pytest.mark.parametrize("envelope", [b'{"messages": []}', b'\n {\t"messages"\n: [{"value": 1}]}'])
async def test_an_envelope_without_a_type_is_refused(topic: HttpBroker, envelope: bytes) -> None:
    check_problem(await topic.client.post(MESSAGES, content=envelope), 415, "unsupported-media-type", "no content type")


async def test_the_one_value_of_a_body_of_json_is_checked_as_others_are(topic: HttpBroker) -> None:
    async def post(query: str, body: bytes) -> Any:
        headers = {"content-type": "application/json"}
        return await topic.client.post(f"{MESSAGES}?{query}", content=body, headers=headers)

    check_problem(await post("key=k", b"{"), 400, "invalid-request", "the body is not valid JSON")
    check_problem(await post("key=k&key_base64=aw==", b"1"), 422, "invalid-request", "not both")
    check_problem(await post("key_base64=%21", b"1"), 422, "invalid-request", "base64")


async def test_a_topic_is_created_once_and_asked_for_as_often_as_one_likes(broker: HttpBroker) -> None:
    async def put(body: dict[str, Any], **headers: str) -> Any:
        return await broker.client.put("/v1/topics/new", json=body, headers=headers)

    only_new = {"if-none-match": "*"}
    first = await put({"segments": 2}, **only_new)
    assert (first.status_code, first.json()["created"], first.json()["differs"]) == (201, True, {})
    check_problem(await put({"segments": 2, "rollup_bytes": 2048}, **only_new), 412, "topic-exists", "'new'")
    again = await put({"segments": 2, "rollup_bytes": 4096})
    assert (again.status_code, again.json()["created"], again.json()["differs"]) == (200, False, {})
    assert again.json()["config"]["rollup_bytes"] == 4096
    (await broker.client.post("/v1/topics/new/segments/0/split", json={})).raise_for_status()
    later = (await put({"segments": 2})).json()
    assert (later["created"], later["differs"]) == (False, {"segments": {"wanted": 2, "actual": 3}})
    assert sum(each["state"] == "open" for each in later["segments"]) == 3
    (await broker.client.delete("/v1/topics/new")).raise_for_status()
    assert (await put({"segments": 2}, **only_new)).json()["created"]


async def test_a_topic_that_another_broker_created_at_that_moment_gets_the_settings_of_this_request_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with http_broker(MemoryStore()) as broker:
        catalogue = broker.broker.catalogue
        create = catalogue.create

        async def after_the_other(state: TopicState) -> bool:
            others = state.config.model_copy(update={"segment_bytes": 4096, "rollup_bytes": 4096})
            assert await create(state.model_copy(update={"config": others}))
            return await create(state)

        monkeypatch.setattr(catalogue, "create", after_the_other)
        runtime, put = await broker.broker.administration.put("t", {"rollup_bytes": 2048})
        assert not put.created
        assert (runtime.state.config.segment_bytes, runtime.state.config.rollup_bytes) == (4096, 2048)


HUGE_INTEGERS = [
    ("POST", "/v1/topics/t/messages", '{{"messages": [{{"value": {}}}]}}'),
    ("POST", "/v1/topics/t/messages?key=k", "{}"),
    ("PUT", "/v1/topics/t", '{{"segments": {}}}'),
    ("PUT", "/v1/topics/new", '{{"retention": {{"seconds": {}}}}}'),
    ("PUT", "/v1/topic-groups/g", '{{"segments": {}}}'),
    ("PUT", "/v1/topics/t/groups/q", '{{"lease_seconds": {}}}'),
    ("POST", "/v1/topics/t/groups/q/claims", '{{"max_messages": {}}}'),
    ("POST", "/v1/topics/t/groups/q/claims", '{{"wait": {}}}'),
    ("POST", "/v1/topics/t/groups/q/acks", '{{"messages": [{{"claim": "x", "from": {}}}]}}'),
    ("POST", "/v1/topics/t/groups/q/reset", '{{"to": {}}}'),
    ("POST", "/v1/topics/t/groups/s/members", '{{"session_seconds": {}}}'),
    ("POST", "/v1/topics/t/groups/s/members/m/heartbeats", '{{"member_epoch": {}}}'),
    ("POST", "/v1/topics/t/groups/s/commits", '{{"member_id": "m", "member_epoch": {}}}'),
    ("POST", "/v1/topics/t/uploads", '{{"size_bytes": {}}}'),
    ("POST", "/v1/topics/t/loads", '{{"rows": {}}}'),
    ("GET", "/v1/topics/t/messages?limit={}", None),
    ("GET", "/v1/topics/t/messages?wait={}", None),
    ("GET", "/v1/topics/t/segments/{}/messages", None),
    ("GET", "/v1/topics/t/segments/0/messages?offset={}", None),
    ("GET", "/v1/topics/t/messages/{}-0", None),
    ("POST", "/v1/topics/t/messages?producer=p&sequence={}", "x"),
    ("POST", "/v1/topics/t/messages?delay_seconds={}", "x"),
]


@pytest.mark.parametrize("digits", [400, 5000, 70_000])
async def test_an_integer_without_end_is_told_of_in_an_answer_of_4xx(memory_broker: HttpBroker, digits: int) -> None:
    """Python converts none of more than some thousand digits."""
    client = memory_broker.client
    await client.put("/v1/topics/t", json={})
    for method, path, body in HUGE_INTEGERS:
        number = "1" * (digits if "{" not in path else min(digits, 50_000))  # no address is longer
        headers = {"content-type": "application/json" if body and "{" in body else "text/plain"}
        content = None if body is None else body.format(number)
        answer = await client.request(method, path.format(number), content=content, headers=headers)
        assert 400 <= answer.status_code < 500, (method, path, answer.text[:300])
    number = "1" * digits
    lines = f'{{"value": 1}}\n{{"value": {number}}}'
    answer = await client.post(MESSAGES, content=lines, headers={"content-type": NDJSON})
    check_problem(answer, 400, "invalid-request", "line 2", "not valid JSON")
    async with raw_socket(memory_broker.port) as socket:
        await socket.send(frame(f'{{"id": 5, "publish": [{{"value": {number}}}]}}'.encode()))
        told = (await socket.next()).document
        problem = told["problem"] if "problem" in told else told["answers"][0]["problem"]
        assert problem["type"] == "urn:braidmq:invalid-request", told
