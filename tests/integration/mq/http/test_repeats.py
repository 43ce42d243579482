"""A publish with a producer and a sequence, sent again: the same answer, byte by byte, and every message once."""

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from filer import keys
from filer.clock import SystemClock
from filer.errors import BraidError, OutcomeUnknown
from filer.segment import sequence_window
from filer.segment.segment_log import seal_at_end
from filer.segment.writer.pending_request import Waiter
from filer.segment.writer.segment_writer import SegmentWriter
from filer.segment.writer.writer_state import WriterState
from filer.slots import SLOTS, equal_ranges, slot_of
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, Fetched, MakeData, Store
from filer.topic.topic_state import Segment, TopicState, Transition
from mq.broker import Broker
from tests.cluster.checker.consumers import read_topic
from tests.cluster.checker.producers import ARROW_TYPE, arrow_stream
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.publish_paths import is_fast as is_fast

MESSAGES = "/v1/topics/t/messages"
ID = {"producer": "p", "sequence": "1"}
KEYS = [b"key %d" % n for n in range(40)]


def json_form(keys: Sequence[bytes | None]) -> dict[str, Any]:
    rows = [{"key": key and key.decode(), "value": f"{n}"} for n, key in enumerate(keys)]
    return {"json": {"messages": rows}}


def ndjson_form(keys: Sequence[bytes | None]) -> dict[str, Any]:
    rows = json_form(keys)["json"]["messages"]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    return {"content": lines, "headers": {"content-type": "application/x-ndjson"}}


def arrow_form(keys: Sequence[bytes | None]) -> dict[str, Any]:
    columns: dict[str, Any] = {"key": list(keys), "value": [b"%d" % n for n in range(len(keys))]}
    return {"content": arrow_stream(columns), "headers": {"content-type": ARROW_TYPE}}


def raw_form(keys: Sequence[bytes | None]) -> dict[str, Any]:
    key = keys[0]
    named = {} if key is None else {"key_base64": base64.b64encode(key).decode()}
    return {"content": b"0", "params": named}


FORMS = {"json": json_form, "ndjson": ndjson_form, "arrow": arrow_form, "raw": raw_form}


async def publish(broker: HttpBroker, arguments: Mapping[str, Any], request: Mapping[str, str] = ID) -> httpx.Response:
    params = {**arguments.get("params", {}), **request}
    return await broker.client.post(MESSAGES, **{**arguments, "params": params})


async def stored(broker: HttpBroker) -> list[bytes | None]:
    return [found.value for found in await read_topic(broker.url, "t")]


@pytest.fixture
async def topic(memory_broker: HttpBroker) -> HttpBroker:
    """A broker with topic `t` of four segments."""
    (await memory_broker.client.put("/v1/topics/t", json={"segments": 4})).raise_for_status()
    return memory_broker


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


async def change_shape(broker: Broker, ranges: Sequence[tuple[int, int]]) -> None:
    """Seal all open segments of topic `t`, and open successors of these ranges."""

    def begin(state: TopicState) -> TopicState | None:
        if state.transition is not None:
            return None
        now_us = broker.clock.now_us()
        opened = [
            Segment(
                id=state.next_segment + n, start_slot=start, stop_slot=stop, brokers=(broker.id,), opened_us=now_us,
                reason="split",
                predecessors=tuple(s.id for s in state.open_segments if s.start_slot < stop and s.stop_slot > start),
            )
            for n, (start, stop) in enumerate(ranges)
        ]  # fmt: skip
        sealing = tuple(segment.id for segment in state.open_segments)
        record = Transition(seal=sealing, open=tuple(opened), reason="split", started_us=now_us)
        return state.model_copy(update={"transition": record, "next_segment": state.next_segment + len(ranges)})

    await broker.executor.change("t", begin)


# -- the same answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [KEYS, [None] * 40], ids=["keys", "no keys"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_repeat_in_every_form(topic: HttpBroker, form: str, keys: list[bytes | None]) -> None:
    first = await publish(topic, FORMS[form](keys))
    assert first.status_code == 200
    before = await topic.end_offsets("t")
    for _ in range(3):
        assert (await publish(topic, FORMS[form](keys))).content == first.content
    assert await topic.end_offsets("t") == before
    assert sum(p["count"] for p in first.json()["positions"]) == len(await stored(topic))


async def test_other_requests_are_no_repeats(topic: HttpBroker) -> None:
    others = [{"producer": "p", "sequence": "0"}, {"producer": "q", "sequence": "1"}, {}, {}]
    for request in [ID, *others]:
        (await publish(topic, json_form(KEYS), request)).raise_for_status()
    assert len(await stored(topic)) == 5 * len(KEYS)


async def test_repeats_at_once(topic: HttpBroker) -> None:
    answers = await asyncio.gather(*(publish(topic, json_form(KEYS)) for _ in range(10)))
    assert {answer.content for answer in answers} == {answers[0].content}
    assert answers[0].status_code == 200
    assert len(await stored(topic)) == len(KEYS)


async def test_an_empty_request(topic: HttpBroker) -> None:
    for _ in range(2):
        assert (await publish(topic, json_form([]))).json() == {"positions": []}


@pytest.mark.parametrize("largest", ["0", str(2**62)])
async def test_the_ends_of_the_numbers(topic: HttpBroker, largest: str) -> None:
    request = {"producer": "A-z.0_9:" * 25, "sequence": largest}
    first = await publish(topic, raw_form(KEYS), request)
    assert first.status_code == 200
    await topic.broker.executor.give_successors("t", [0, 1, 2, 3], "roll")
    assert (await publish(topic, raw_form(KEYS), request)).content == first.content


# -- across transitions and restarts -----------------------------------------------------------------------


@pytest.mark.parametrize("keys", [KEYS, [None] * 40], ids=["keys", "no keys"])
async def test_across_a_roll(topic: HttpBroker, keys: list[bytes | None]) -> None:
    first = await publish(topic, json_form(keys))
    for n in range(3):
        await topic.broker.executor.give_successors("t", [4 * n, 4 * n + 1, 4 * n + 2, 4 * n + 3], "roll")
        assert (await publish(topic, json_form(keys))).content == first.content
    assert len(await stored(topic)) == len(keys)


@pytest.mark.parametrize("parts", [1, 2, 7, 8])
async def test_across_splits_and_merges(topic: HttpBroker, parts: int) -> None:
    first = await publish(topic, json_form(KEYS))
    await change_shape(topic.broker, equal_ranges(parts))
    assert (await publish(topic, json_form(KEYS))).content == first.content
    await change_shape(topic.broker, [(0, 10), (10, SLOTS - 10), (SLOTS - 10, SLOTS)])
    assert (await publish(topic, json_form(KEYS))).content == first.content
    assert len(await stored(topic)) == len(KEYS)


@pytest.mark.parametrize("parts", [1, 4, 8])
@pytest.mark.parametrize("drains", [True, False], ids=["drained", "not drained"])
async def test_across_a_restart(tmp_path: Path, drains: bool, parts: int) -> None:
    """Also where a broker had opened successors, and stopped before anything was published to them."""
    store: Store = LocalStore(tmp_path, clock=SystemClock())
    answers: list[bytes] = []
    for life in range(3):
        async with http_broker(store) as broker:
            await broker.client.put("/v1/topics/t", json={} if life else {"segments": 4})
            answers.append((await publish(broker, json_form(KEYS))).content)
            await change_shape(broker.broker, equal_ranges(parts))
            if not drains:
                await broker.broker.close()
            store = LocalStore(tmp_path, clock=SystemClock())
    assert answers == [answers[0]] * 3
    assert b"positions" in answers[0]
    async with http_broker(store) as broker:
        assert len(await stored(broker)) == len(KEYS)


class ForgetfulStore(ForwardingStore):
    """Once a transition is over it gives no answer to who reads `segment=0`, until told to."""

    forgets = False

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        if key == keys.topic("t"):
            self.forgets = TopicState.from_json(bytes(data)).transition is None
        return await self.inner.replace(key, data, etag=etag)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        if "/segment=0/" in key and self.forgets:
            raise OutcomeUnknown("no answer")
        return await self.inner.get(key, start=start, stop=stop)


@pytest.mark.parametrize("form", ["json", "raw"])
async def test_a_segment_that_another_process_sealed(form: str) -> None:
    """Its successor has to read the seal: who has an id waits for that, nobody else does."""
    store = ForgetfulStore(MemoryStore())
    async with http_broker(store) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        first = await publish(broker, FORMS[form](KEYS))
        ref = broker.broker.topics["t"].ref(0)
        await seal_at_end(store.inner, SystemClock(), ref, start_offset=0, writer="other", grace_seconds=3600)
        other = await repeated_until_stored(broker, FORMS[form](KEYS), {})
        assert {position["segment"] for position in other.json()["positions"]} == {1}
        repeat = asyncio.create_task(publish(broker, FORMS[form](KEYS)))
        assert (await publish(broker, FORMS[form](KEYS), {})).status_code == 200
        assert not repeat.done()
        store.forgets = False
        assert (await repeat).content == first.content


async def test_shares_that_a_merge_brings_together_under_way() -> None:
    """Both segments are lost before the shares are stored, and one takes their place: it has to store all of them."""
    clock, faults, memory = SystemClock(), ScriptedFaults(), MemoryStore()
    store = FailingStore(memory, faults, clock=clock)
    async with http_broker(store) as broker:
        (await broker.client.put("/v1/topics/t", json={"segments": 2})).raise_for_status()
        faults.add("create", FaultKind.HANG, key_part="/segments/")
        runtime = broker.broker.topics["t"]
        request = asyncio.create_task(publish(broker, json_form(KEYS)))
        await until(lambda: all(writer.pending_bytes for writer in runtime.writers.values()))
        for segment in (0, 1):
            await seal_at_end(memory, clock, runtime.ref(segment), start_offset=0, writer="other", grace_seconds=3600)
        merging = asyncio.create_task(change_shape(broker.broker, [(0, SLOTS)]))
        await until(lambda: runtime.writers[0].state is WriterState.SEALING)
        await broker.broker.topics.refresh("t")
        store.release()
        await merging
        assert (await request).json() == {"positions": [{"segment": 2, "offset": 0, "count": len(KEYS)}]}
        assert (await publish(broker, json_form(KEYS))).content == (await request).content


async def test_repeats_while_segments_come_and_go(topic: HttpBroker) -> None:
    """Each request is sent three times, by publishers that know nothing of one another, under one change of shape
    after the other."""
    chance, sequences, done = random.Random(11), count(), asyncio.Event()

    async def publisher() -> None:
        while not done.is_set():
            sequence = next(sequences)
            rows = [{"key": f"k{n}", "value": f"{sequence} {n}"} for n in range(7)]
            arguments = {"json": {"messages": rows}}
            request = {"producer": "p", "sequence": str(sequence)}
            answers = await asyncio.gather(*(publish(topic, arguments, request) for _ in range(3)))
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.content for answer in answers}) == 1, [answer.text for answer in answers]

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(publisher())
        for _ in range(12):
            before = next(sequences)
            async with asyncio.timeout(20):
                while next(sequences) < before + 10:
                    await asyncio.sleep(0.005)
            await change_shape(topic.broker, equal_ranges(chance.choice([1, 2, 3, 5, 8])))
        done.set()
    counts = Counter(await stored(topic))
    assert set(counts.values()) == {1}
    assert len(counts) > 100


# -- what fails --------------------------------------------------------------------------------------------


class MoodyStore(ForwardingStore):
    """Creates nothing that has `refused` in its key, by an error that stops the owner: it repeats no such put."""

    refused = "nothing at all"
    error: BraidError = BraidError("unforeseen")

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        if self.refused in key:
            raise self.error
        await self.inner.create(key, data, metadata=metadata)


@pytest.fixture
async def moody() -> AsyncIterator[HttpBroker]:
    async with http_broker(MoodyStore(MemoryStore())) as broker:
        (await broker.client.put("/v1/topics/t", json={"segments": 2})).raise_for_status()
        yield broker


async def repeated_until_stored(
    broker: HttpBroker, arguments: Mapping[str, Any], request: Mapping[str, str] = ID
) -> httpx.Response:
    """What a client does that believes `retryable`."""
    async with asyncio.timeout(20):
        while (answer := await publish(broker, arguments, request)).status_code != 200:
            assert answer.json()["retryable"], answer.text
            await asyncio.sleep(0.01)
    return answer


@pytest.mark.parametrize("parts", [None, 1, 3], ids=["as it was", "merged", "cut otherwise"])
async def test_a_repeat_completes_what_was_stored_in_part(moody: HttpBroker, parts: int | None) -> None:
    store = moody.broker.store
    assert isinstance(store, MoodyStore)
    store.refused = "/segment=1/"
    answer = await publish(moody, json_form(KEYS))
    problem = check_problem(answer, 503, "publish-incomplete")
    assert problem["retryable"]
    (part,) = problem["positions"]
    assert (part["segment"], part["offset"]) == (0, 0)
    store.refused = "nothing at all"
    if parts is not None:
        # The broken segment is taken up first.
        runtime = moody.broker.topics["t"]
        await until(lambda: all(segment.id != 1 for segment in runtime.state.open_segments))
        await change_shape(moody.broker, equal_ranges(parts))
    whole = await repeated_until_stored(moody, json_form(KEYS))
    assert part in whole.json()["positions"]
    assert (await publish(moody, json_form(KEYS))).content == whole.content
    assert sorted(value for value in await stored(moody) if value) == sorted(b"%d" % n for n in range(len(KEYS)))


async def test_without_an_id_a_part_may_not_be_repeated(moody: HttpBroker) -> None:
    store = moody.broker.store
    assert isinstance(store, MoodyStore)
    store.refused = "/segment=1/"
    problem = check_problem(await publish(moody, json_form(KEYS), {}), 503, "publish-incomplete")
    assert not problem["retryable"]
    store.refused = "nothing at all"


@pytest.mark.parametrize("form", ["json", "raw"])
async def test_an_unknown_outcome_may_be_repeated_with_an_id(
    topic: HttpBroker, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*arguments: object, **named: object) -> Waiter:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        waiter.set_exception(OutcomeUnknown("no answer"))
        return waiter

    monkeypatch.setattr(SegmentWriter, "append", unknown)
    monkeypatch.setattr(SegmentWriter, "gather", lambda *arguments: (unknown(), 0))
    for request, retryable in ((ID, True), ({}, False)):
        problem = check_problem(await publish(topic, FORMS[form](KEYS), request), 503, "store-unavailable", "no answer")
        assert problem["retryable"] == retryable


async def test_below_the_window(topic: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the request is stored, though only one of its segments cannot tell any more."""
    monkeypatch.setattr(sequence_window, "WINDOW_SEQUENCES", 3)
    for sequence in range(1, 5):
        (await publish(topic, raw_form(KEYS), {"producer": "p", "sequence": str(sequence)})).raise_for_status()
    before = await topic.end_offsets("t")
    for form in FORMS.values():
        answer = await publish(topic, form(KEYS))
        check_problem(answer, 409, "sequence-expired", "sequence 1 of producer 'p'", "not stored now")
    assert await topic.end_offsets("t") == before
    elsewhere = next(key for key in KEYS if slot_of(key) // (SLOTS // 4) != slot_of(KEYS[0]) // (SLOTS // 4))
    assert (await publish(topic, raw_form([elsewhere]))).status_code == 200, "that segment has seen none of them"


BAD = [
    ({"producer": "p"}, "producer without sequence"),
    ({"sequence": "1"}, "sequence without producer"),
    ({"producer": "", "sequence": "1"}, "1 to 200"),
    ({"producer": "x" * 201, "sequence": "1"}, "1 to 200"),
    ({"producer": "a b", "sequence": "1"}, "A-Z a-z 0-9 . _ : -"),
    ({"producer": "ü", "sequence": "1"}, "A-Z a-z 0-9 . _ : -"),
    ({"producer": "p\n", "sequence": "1"}, "A-Z a-z 0-9 . _ : -"),
    ({"producer": "p", "sequence": ""}, "whole number"),
    ({"producer": "p", "sequence": "-1"}, "whole number"),
    ({"producer": "p", "sequence": "+1"}, "whole number"),
    ({"producer": "p", "sequence": "1.0"}, "whole number"),
    ({"producer": "p", "sequence": "1_0"}, "whole number"),
    ({"producer": "p", "sequence": "٣"}, "whole number"),
    ({"producer": "p", "sequence": " 1"}, "whole number"),
    ({"producer": "p", "sequence": str(2**62 + 1)}, "4611686018427387904 (2^62)"),
    ({"producer": "p", "sequence": "9" * 5000}, "whole number"),
    ({"producr": "p", "sequence": "1"}, "did you mean 'producer'?"),
]


@pytest.mark.parametrize(("request_", "detail"), BAD)
async def test_bad_ids(topic: HttpBroker, request_: dict[str, str], detail: str) -> None:
    before = await topic.end_offsets("t")
    for form in FORMS.values():
        check_problem(await publish(topic, form(KEYS), request_), 422, "invalid-request", detail)
    assert await topic.end_offsets("t") == before


async def test_an_id_twice_over(topic: HttpBroker) -> None:
    answer = await topic.client.post(f"{MESSAGES}?producer=a&sequence=1&sequence=2", content=b"x")
    check_problem(answer, 422, "invalid-request", "given more than once")
