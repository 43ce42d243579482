"""A load's calls against a server that loses answers, is busy, refuses, or has other files."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from filer.load_files import LoadFile
from filer.topic_config import TopicConfig
from pipeline.errors import JobFailed
from pipeline.load_calls import LoadCalls, StoredFile
from tests.support.scripted_http import Respond, ScriptedServer, answer, path_of, scripted_server

DATA = b"the bytes of a file"
FILE = LoadFile(7, 30, 5, pa.py_buffer(DATA))
STORED = StoredFile(7, 30, 5, len(DATA))
MD5 = hashlib.md5(DATA).hexdigest()


class Script:
    """A broker and its store: `there` is what a look finds, `puts` the answers to puts in turn."""

    def __init__(self, *puts: bytes, there: dict[str, Any] | None = None) -> None:
        self.puts, self.there, self.url = list(puts), there, ""
        self.found_after: dict[str, Any] | None = None

    def respond(self, head: str) -> bytes:
        if head.startswith("PUT"):
            self.there = self.found_after
            return self.puts.pop(0)
        place = {"url": f"{self.url}/put", "headers": {"x-bound": "1"}, "there": self.there}
        return answer(200, json.dumps({"files": [place]}))


async def put(script: Script) -> tuple[StoredFile, ScriptedServer]:
    async with scripted_server(script.respond) as server:
        script.url = server.url
        return await asyncio.to_thread(LoadCalls((server.url,), "t").put, "l", FILE), server


async def test_a_file_is_put_where_the_broker_says():
    stored, server = await put(Script(answer(200)))
    assert stored == STORED
    (sent,) = [head for head in server.heads if head.startswith("PUT")]
    assert path_of(sent) == "/put" and "x-bound: 1" in sent and f"content-length: {len(DATA)}" in sent.lower()


@pytest.mark.parametrize("etag", [MD5, f'"{MD5}"', "17f-13"])
async def test_one_that_is_there_already_is_not_sent_again(etag: str):
    stored, server = await put(Script(there={"size": len(DATA), "etag": etag}))
    assert stored == STORED and not [head for head in server.heads if head.startswith("PUT")]


@pytest.mark.parametrize("first", [b"", answer(412), answer(503)])
async def test_a_put_whose_answer_was_lost_is_found_to_be_there(first: bytes):
    script = Script(first)
    script.found_after = {"size": len(DATA), "etag": MD5}
    stored, _ = await put(script)
    assert stored == STORED


@pytest.mark.parametrize("first", [b"", answer(503), answer(409)])
async def test_a_put_that_did_not_take_effect_is_repeated(first: bytes):
    stored, server = await put(Script(first, answer(200)))
    assert stored == STORED and len([head for head in server.heads if head.startswith("PUT")]) == 2


@pytest.mark.parametrize("there", [{"size": 3, "etag": "x"}, {"size": len(DATA), "etag": "0" * 32}])
async def test_another_file_under_the_name_is_told(there: dict[str, Any]):
    with pytest.raises(JobFailed, match="segment 7 has another file at offset 30: what is read is not what was read"):
        await put(Script(there=there))


PROBLEM = json.dumps({"detail": "the load is committed"})


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (answer(403, "<Error/>"), "HTTP 403"),
        (answer(409, PROBLEM, Content_Type="application/problem+json"), "the load is committed"),
    ],
)
async def test_a_refusal_ends_it_at_once(refusal: bytes, said: str):
    with pytest.raises(JobFailed, match=said):
        await put(Script(refusal))


async def called(respond: Respond, call: Callable[[LoadCalls], Any], *, dead_first: bool = False) -> Any:
    async with scripted_server(respond) as server:
        urls = ("http://127.0.0.1:1", server.url) if dead_first else (server.url,)
        return await asyncio.to_thread(call, LoadCalls(urls, "t"))


async def test_a_busy_broker_is_asked_again_and_a_dead_one_passed_over():
    answers = [answer(503), answer(200, json.dumps({"load": "l", "messages": 5}))]
    committed = await called(lambda head: answers.pop(0), lambda calls: calls.commit("l", [STORED]), dead_first=True)
    assert committed == {"load": "l", "messages": 5}


async def test_what_a_broker_says_of_a_refused_load_is_told():
    refusal = answer(422, json.dumps({"detail": "segment 7: offset 30 is there twice"}))
    with pytest.raises(JobFailed, match="offset 30 is there twice"):
        await called(lambda head: refusal, lambda calls: calls.commit("l", [STORED]))


async def test_reserved_segments_are_those_of_the_answer():
    segments = [{"segment": 9, "range": [0, 65536], "prefix": "topics/t/segments/segment=9/"}]
    document = {"load": "l", "timestamp": "2026-01-31T12:00:00.000001Z", "expires": "", "segments": segments}
    reply = answer(201, json.dumps(document))
    found = await called(lambda head: reply, lambda calls: calls.reserve(TopicConfig(), 1, None))
    (segment,) = found.segments
    assert (found.load, segment.segment, segment.stop_slot) == ("l", 9, 65536)
    assert segment.timestamp_us == 1_769_860_800_000_001 and segment.load == "l"
