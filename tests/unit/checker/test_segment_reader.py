"""A reader that goes for one place: it asks every broker, is told of gaps, and what it got stands the same checks."""

import asyncio
import contextlib

import httpx
import orjson
import pytest

from tests.cluster.checker.history import GARBLED, Found, Gap
from tests.cluster.checker.reader_verdict import judge_readers
from tests.cluster.checker.segment_reader import SegmentReader

KEY = "topics/t/segments/segment=3/00000000000000000007.parquet"
MESSAGES = [{"segment": 3, "offset": n, "key": "k", "value": f"k {n}"} for n in (7, 8)]
GONE = {"type": "urn:braidmq:data-missing", "key": KEY, "segment": 3, "offset": 7, "next_offset": 9}


async def read(*answers: httpx.Response | Exception, urls: tuple[str, ...] = ("http://b0",)) -> SegmentReader:
    """One that is given these answers, one after the other, and nothing more."""
    left, done = list(answers), asyncio.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/topics/t/segments/3/messages" and request.url.params["offset"] == "7"
        if not left:
            done.set()
            raise httpx.ConnectError("over")
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    reader = SegmentReader("r", "t", 3, 7, lambda: 0.0)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        following = asyncio.create_task(reader.follow(client, urls))
        await done.wait()
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    return reader


async def test_it_is_given_the_messages_there_by_every_broker() -> None:
    page = orjson.dumps({"messages": MESSAGES})
    reader = await read(
        httpx.Response(200, content=page), httpx.Response(200, content=page), urls=("http://a", "http://b")
    )
    visits = reader.record.visits[:2]
    assert [visit.url for visit in visits] == ["http://a", "http://b"]
    assert all(visit.found == [Found(3, n, b"k", b"k %d" % n) for n in (7, 8)] for visit in visits)
    log = {(3, n): Found(3, n, b"k", b"k %d" % n) for n in range(10)}
    assert judge_readers([reader.record], (), log, staleness_seconds=5.0) == []


async def test_it_is_told_of_a_gap() -> None:
    reader = await read(httpx.Response(404, content=orjson.dumps(GONE)))
    assert list(reader.record.told) == [Gap(KEY, 3, 7, 9)]


async def test_messages_that_are_missing_without_a_word_are_complained_of() -> None:
    reader = await read(httpx.Response(200, content=orjson.dumps({"messages": MESSAGES[1:]})))
    (complaint,) = judge_readers([reader.record], (), {(3, 8): Found(3, 8, b"k", b"k 8")}, staleness_seconds=5.0)
    assert complaint.startswith("skipped: r at http://b0: segment 3 goes on at 8, not 7")


@pytest.mark.parametrize("content", [b"no JSON", b"{}", b'{"messages": [{}]}'])
async def test_what_does_not_parse_is_garbled(content: bytes) -> None:
    reader = await read(httpx.Response(200, content=content))
    assert reader.record.visits[0].end == GARBLED


async def test_a_broker_that_is_gone_is_passed_by() -> None:
    reader = await read(httpx.ConnectError("gone"), httpx.Response(200, content=orjson.dumps({"messages": MESSAGES})))
    assert [len(visit.found) for visit in reader.record.visits[:2]] == [0, 2]
