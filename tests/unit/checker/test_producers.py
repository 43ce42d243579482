"""What a producer sends, and how it reads the answer."""

import json

import httpx
import orjson
import pyarrow as pa
import pytest

from tests.cluster.checker.history import Attempt, Form, Sent
from tests.cluster.checker.producers import Producer, arrow_stream, publish

URL = "http://broker"
MESSAGES = (Sent("k", 0), Sent("k", 1))


@pytest.mark.parametrize("form", ["raw", "json", "ndjson", "arrow"])
def test_numbers_per_key(form: Form) -> None:
    producer = Producer("p", "t", form, keys=2, rows=3)
    taken = [message for _ in range(6) for message in producer.take()]
    for key in ("p.0", "p.1"):
        numbers = [message.number for message in taken if message.key == key]
        assert numbers == list(range(len(numbers)))


def test_arrow_bodies_are_what_they_say() -> None:
    body = arrow_stream({"key": [b"k"], "value": [b"v"]})
    assert pa.ipc.open_stream(body).read_all().to_pylist() == [{"key": b"k", "value": b"v"}]


def test_each_form_carries_the_same_messages() -> None:
    requests = {form: Producer("p", "t", form).request(URL, MESSAGES) for form in ("json", "ndjson", "arrow")}
    rows = [{"key": "k", "value_base64": "ayAw"}, {"key": "k", "value_base64": "ayAx"}]
    assert orjson.loads(requests["json"]["content"]) == {"messages": rows}
    assert [orjson.loads(line) for line in requests["ndjson"]["content"].splitlines()] == rows
    table = pa.ipc.open_stream(requests["arrow"]["content"]).read_all()
    assert table.to_pylist() == [{"key": b"k", "value": m.value} for m in MESSAGES]
    assert Producer("p", "t", "raw").request(URL, MESSAGES)["content"] == MESSAGES[0].value


def test_a_request_says_who_sends_it_and_what_it_waits_for() -> None:
    producer = Producer("p", "t", "json", identified=True, acks="replicated")
    assert [producer.next_sequence() for _ in range(3)] == [1, 2, 3]
    params = producer.request(URL, MESSAGES, 3)["params"]
    assert params == {"acks": "replicated", "producer": "p", "sequence": "3"}
    assert Producer("q", "t", "json").next_sequence() is None
    assert Producer("q", "t", "json").request(URL, MESSAGES)["params"] == {}


def test_only_identified_producers_repeat() -> None:
    assert [Producer("p", "t", "raw", identified=True, repeat_every=2).repeats(n) for n in (1, 2, None)] == [
        False,
        True,
        False,
    ]
    with pytest.raises(ValueError, match="identified"):
        Producer("p", "t", "raw", repeat_every=2)


async def answered(answer: httpx.Response | Exception, sequence: int | None = None) -> Attempt:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    times = iter((1.0, 2.0))
    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
        arguments = Producer("p", "t", "json").request(URL, MESSAGES, sequence)
        return await publish(client, URL, arguments, lambda: next(times))


def problem(status: int, *, retryable: bool) -> httpx.Response:
    return httpx.Response(status, content=json.dumps({"retryable": retryable}))


async def test_an_acknowledgement() -> None:
    answer = httpx.Response(200, json={"positions": [{"segment": 3, "offset": 7, "count": 2}]})
    assert await answered(answer) == Attempt(URL, 1.0, 2.0, "acknowledged", ((3, 7, 2),))


@pytest.mark.parametrize(
    ("answer", "outcome", "final"),
    [
        (problem(503, retryable=True), "failed", False),
        (problem(429, retryable=True), "failed", False),
        (problem(409, retryable=False), "failed", True),
        (problem(503, retryable=False), "unknown", False),
        (httpx.Response(502, text="not ours"), "unknown", False),
        (httpx.Response(200, json={}), "unknown", False),
        (httpx.Response(200, json=[]), "unknown", False),
        (httpx.ConnectError("refused"), "failed", False),
        (httpx.ConnectTimeout("silence"), "failed", False),
        (httpx.ReadTimeout("silence"), "unknown", False),
        (httpx.RemoteProtocolError("cut"), "unknown", False),
    ],
)
async def test_what_is_no_acknowledgement(answer: httpx.Response | Exception, outcome: str, final: bool) -> None:
    attempt = await answered(answer)
    assert (attempt.outcome, attempt.final, attempt.positions) == (outcome, final, ())


async def test_a_refusal_with_an_id_may_have_stored_a_part() -> None:
    assert (await answered(problem(503, retryable=True), sequence=1)).outcome == "unknown"
    assert (await answered(problem(429, retryable=True), sequence=1)).outcome == "failed"
