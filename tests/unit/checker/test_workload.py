"""What a load does when brokers do not answer, and that its history says so."""

import asyncio
from typing import Literal

import httpx
import pytest

from tests.cluster.checker.consumers import Consumer, Follower
from tests.cluster.checker.history import History, Start
from tests.cluster.checker.producers import Producer
from tests.cluster.checker.verdict import judge
from tests.cluster.checker.workload import KEPT_ATTEMPTS, HistoryFull, NotReadable, Workload
from tests.unit.checker.scripted_log import SEGMENT, TOPIC, ScriptedLog

A, B = "http://a", "http://b"
CONSUMERS = (
    Consumer("stream", TOPIC, "stream"),
    Consumer("rewinding", TOPIC, "stream", rewinds=True),
    Consumer("pages", TOPIC, "browse", rewinds=True),
    Consumer("late stream", TOPIC, "stream", start="latest"),
    Consumer("late pages", TOPIC, "browse", start="latest"),
)
STARTS: tuple[Start, ...] = ("earliest", "latest")


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog()


def identified() -> Producer:
    return Producer("known", TOPIC, "json", identified=True, repeat_every=2)


def workload(
    log: ScriptedLog, *producers: Producer, consumers: tuple[Consumer, ...] = (), **settings: float
) -> Workload:
    return Workload([A, B], producers=producers, consumers=consumers, transport=log.transport, **settings)  # type: ignore[arg-type]


async def test_everything_goes_well(log: ScriptedLog) -> None:
    load = workload(log, identified(), Producer("plain", TOPIC, "json"), consumers=CONSUMERS)
    async with load.running():
        await load.acknowledged(100)
        await load.read_to_the_end()
    assert judge(load.history) == []
    assert load.history.count("acknowledged") == len(log.rows) >= 100
    assert {reader.kind for reader in load.history.readers} == {"stream", "browse", "final"}
    assert all(list(reader.found) for reader in load.history.readers if reader.start == "earliest")
    assert any(len(request.acknowledgements) == 2 for request in load.history.requests), "nothing was repeated"


async def test_readers_rewind_and_move_between_brokers(log: ScriptedLog) -> None:
    load = workload(log, identified(), consumers=CONSUMERS)
    async with load.running():
        await load.acknowledged(200)
        await load.read_to_the_end()
    rewinding = next(reader for reader in load.history.readers if reader.name == "rewinding")
    found = list(rewinding.found)
    assert len(found) > len(set(found)), "it never went back"
    assert {visit.url for visit in rewinding.visits} == {A, B}


@pytest.mark.parametrize("form", ["stream", "browse"])
async def test_a_consumer_that_hurries_does_not_go_back(log: ScriptedLog, form: Literal["stream", "browse"]) -> None:
    load = workload(log, identified())
    async with load.running():
        await load.acknowledged(300)
    follower = Follower(Consumer("r", TOPIC, form, rewinds=True), load.now, 1, silence_seconds=5.0)
    follower.hurry()
    async with httpx.AsyncClient(transport=log.transport) as client:
        following = asyncio.create_task(follower.follow(client, [A, B]))
        while not follower.has_reached({SEGMENT: len(log.rows)}):
            await asyncio.sleep(0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert [message.offset for message in follower.record.found] == list(range(len(log.rows)))


async def test_consumers_that_join_while_it_runs_are_judged_by_what_they_can_have_seen(log: ScriptedLog) -> None:
    load = workload(log, identified())
    joining = [Consumer(f"{start} {form}", TOPIC, form, start) for start in STARTS for form in ("stream", "browse")]
    async with load.running():
        await load.acknowledged(50)
        load.add(*joining)
        await load.acknowledged(50)
        await load.read_to_the_end()
    assert judge(load.history) == []
    oldest, latest = (
        [len(list(reader.found)) for reader in load.history.readers if reader.name.startswith(start)]
        for start in STARTS
    )
    assert min(oldest) == len(log.rows) > max(latest) and min(latest) > 0


async def test_an_identified_request_is_sent_again_as_it_was(log: ScriptedLog) -> None:
    log.manners["a"] = "swallows answers"
    load = workload(log, identified())
    async with load.running():
        await load.acknowledged(20)
        load.urls[:] = [B]
        await load.read_to_the_end()
    first = load.history.requests[0]
    assert [attempt.url for attempt in first.attempts] == [A, B]
    assert [attempt.outcome for attempt in first.attempts] == ["unknown", "acknowledged"]
    assert judge(load.history) == []


async def test_a_request_without_id_is_sent_once(log: ScriptedLog) -> None:
    log.manners["a"] = "swallows answers"
    load = workload(log, Producer("plain", TOPIC, "json"))
    async with load.running():
        await load.acknowledged(20)
        load.urls[:] = [B]
        await load.read_to_the_end()
    assert all(len(request.attempts) == 1 for request in load.history.requests)
    assert load.history.requests[0].outcome == "unknown"
    assert judge(load.history) == []


@pytest.mark.parametrize("manner", ["down", "refuses"])
async def test_a_broker_that_does_not_serve_is_left(log: ScriptedLog, manner: str) -> None:
    log.manners["a"] = manner  # type: ignore[assignment]
    load = workload(log, identified(), Producer("plain", TOPIC, "json"))
    async with load.running():
        await load.acknowledged(20)
    assert load.history.count("unknown") == 0
    assert {attempt.url for request in load.history.requests for attempt in request.acknowledgements} == {B}


async def test_a_refusal_for_good_ends_a_request(log: ScriptedLog) -> None:
    log.manners |= {"a": "refuses for good"}
    load = workload(log, Producer("known", TOPIC, "json", identified=True))
    async with load.running():
        await load.acknowledged(20)
    assert [attempt.final for attempt in load.history.requests[0].attempts] == [True]
    assert load.history.requests[0].outcome == "failed"


async def test_attempts_are_bounded_and_end_some_time_after_the_load(
    log: ScriptedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cluster.checker.workload.RETRY_SECONDS", 0.0)
    log.manners |= {"a": "swallows answers", "b": "refuses"}
    load = workload(log, Producer("known", TOPIC, "json", identified=True), finish_seconds=0.1)
    async with load.running():
        while len(log.hosts) < 5 * KEPT_ATTEMPTS:
            await asyncio.sleep(0)
    request = load.history.requests[0]
    assert len(request.attempts) <= KEPT_ATTEMPTS
    assert request.outcome == "unknown"


async def test_a_history_is_bounded(log: ScriptedLog) -> None:
    load = workload(log, identified(), capacity=50)
    async with load.running():
        with pytest.raises(HistoryFull, match="a history holds 50"):
            await load.acknowledged(51)
    assert load.history.count("acknowledged") == 50


async def test_a_topic_that_cannot_be_read_is_told(log: ScriptedLog) -> None:
    log.manners |= {"a": "down", "b": "down"}
    load = workload(log, consumers=CONSUMERS[:1], finish_seconds=0.1)
    async with load.running():
        with pytest.raises(NotReadable, match="t at http://a"):
            await load.read_to_the_end()


async def test_a_consumer_that_never_gets_there_is_complained_of(log: ScriptedLog) -> None:
    log.stream_messages = 0
    load = workload(log, identified(), consumers=CONSUMERS[:1], finish_seconds=0.1)
    async with load.running():
        await load.acknowledged(5)
        await load.read_to_the_end()
    assert any("not seen" in complaint for complaint in judge(load.history))


async def test_faults_are_in_the_history(log: ScriptedLog) -> None:
    load = workload(log)
    with load.fault("kill", "b0"):
        pass
    (fault,) = load.history.faults
    assert (fault.name, fault.detail) == ("kill", "b0")
    assert fault.ended_seconds is not None
    assert fault.ended_seconds >= fault.started_seconds


def test_an_empty_history_is_of_no_topic() -> None:
    assert History().topics == []
