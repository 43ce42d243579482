"""What is made of other brokers' answers, and of those of whatever listens at an address that was a broker's."""

from collections.abc import Awaitable, Callable, Mapping

import orjson
import pyarrow as pa
import pytest

from filer.errors import BraidError, CorruptFile, DataMissing, OutcomeUnknown, SegmentMoved, UnreadableObject
from filer.format.schema import MessageSchema
from filer.segment.segment_log import SegmentRef
from leader.transitions import SealedEnd
from mq.base.errors import NotFound, OwnerSilent, PeerFailed, PeerSilent, PeerUnreachable
from mq.http.problems import problem_of
from mq.peers.answer_forms import Refusal
from mq.peers.calls import APPEND
from mq.peers.part_batch import Part
from mq.peers.peers import Peers
from mq.peers.traffic_report import TrafficReport
from mq.peers.transport import PeerAnswer

Call = Callable[[Peers], Awaitable[object]]
URL = "http://owner"
REF = SegmentRef("t", 0)


class Transport:
    """Gives one answer to everything."""

    def __init__(self, answer: PeerAnswer) -> None:
        self.answer = answer
        self.asked = self.closed = 0

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        self.asked += 1
        return self.answer

    async def close(self) -> None:
        self.closed += 1


def tail(peers: Peers) -> Awaitable[object]:
    return peers.tail(URL, "t", 0, 0, max_rows=1, max_bytes=1, wait_seconds=0)


CALLS: Mapping[str, Call] = {
    "append": lambda peers: peers.append(URL, "t", 0, 1, REF.schema.log.empty_table(), []),
    "seal": lambda peers: peers.seal(URL, "t", 0, 1, timeout_seconds=1),
    "replicate": lambda peers: peers.replicate(URL, "t", 0, 1, REF.schema.log.empty_table(), [], base=0, stored_end=0),
    "take_over": lambda peers: peers.take_over(URL, "t", 0, 1, timeout_seconds=1),
    "tail": tail,
    "report_traffic": lambda peers: peers.report_traffic(URL, TrafficReport("b", 0, [])),
    "slot_traffic": lambda peers: peers.slot_traffic(URL, "t", 0),
    "drain": lambda peers: peers.drain(URL),
    "undrain": lambda peers: peers.undrain(URL),
}


async def raised(call: Call, answer: PeerAnswer) -> type[BaseException]:
    with pytest.raises(BraidError) as caught:
        await call(Peers(Transport(answer)))
    return caught.type


@pytest.mark.parametrize("call", [*CALLS.values(), lambda peers: peers.refresh(URL, "t", 1)], ids=[*CALLS, "refresh"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SegmentMoved(), SegmentMoved),
        (OutcomeUnknown(), OutcomeUnknown),
        (NotFound("topic", "there is none"), PeerFailed),
        (PeerUnreachable(), PeerSilent),
        (OwnerSilent(), PeerSilent),
        (RuntimeError(), PeerSilent),
        (DataMissing(), DataMissing),
        (CorruptFile(), CorruptFile),
    ],
)
async def test_what_a_broker_says_is_wrong_is_raised(call: Call, error: Exception, expected: type[Exception]) -> None:
    problem = problem_of(error)
    assert await raised(call, PeerAnswer(problem.status, {}, problem.body())) is expected


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"1", b"{}", b'{"outcomes": 1, "end_offset": null}'])
@pytest.mark.parametrize("status", [200, 404, 500])
async def test_an_answer_that_is_none_of_a_brokers_tells_nothing(call: Call, body: bytes, status: int) -> None:
    """Whether something listens there that understood the request cannot be known."""
    assert await raised(call, PeerAnswer(status, {}, body)) is PeerSilent


async def test_messages_without_an_end_are_none_of_a_brokers() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, MessageSchema.of().log) as writer:
        writer.write_table(REF.schema.log.empty_table())
    body = bytes(sink.getvalue())
    assert await raised(tail, PeerAnswer(200, {"braid-sealed": "true"}, body)) is PeerSilent
    good = PeerAnswer(200, {"braid-sealed": "true", "braid-end-offset": "7"}, body)
    page = await Peers(Transport(good)).tail(URL, "t", 0, 0, max_rows=1, max_bytes=1, wait_seconds=0)
    assert (page.end, page.sealed, page.table.num_rows) == (7, True, 0)


async def test_what_a_broker_answers_is_read() -> None:
    answer = {"end_offset": 7, "seal_offset": 5, "stored_bytes": None, "held_end": 8, "taken": True, "segments": 9}
    peers = Peers(Transport(PeerAnswer(200, {}, orjson.dumps(answer))))
    assert await peers.seal(URL, "t", 0, 1, timeout_seconds=1) == SealedEnd(7, 5)
    assert await peers.take_over(URL, "t", 0, 1, timeout_seconds=1) == SealedEnd(7, 5)
    assert await peers.replicate(URL, "t", 0, 1, REF.schema.log.empty_table(), [], base=0, stored_end=0) == 8
    assert await peers.report_traffic(URL, TrafficReport("b", 0, [])) is True
    assert (await peers.drain(URL), await peers.undrain(URL)) == (9, 9)


async def test_an_older_broker_tells_the_end_alone() -> None:
    peers = Peers(Transport(PeerAnswer(200, {}, b'{"end_offset": 7}')))
    assert await peers.seal(URL, "t", 0, 1, timeout_seconds=1) == SealedEnd(7, None)
    assert await peers.take_over(URL, "t", 0, 1, timeout_seconds=1) == SealedEnd(7, None)


async def test_an_owner_that_is_at_it_says_so() -> None:
    peers = Peers(Transport(PeerAnswer(200, {}, b'{"end_offset": null, "stored_bytes": null}')))
    assert await peers.seal(URL, "t", 0, 1, timeout_seconds=1) is None


async def test_what_waits_for_messages_takes_no_connection_of_what_does_not() -> None:
    none = PeerAnswer(404, {}, b"")
    calls, polls = Transport(none), Transport(none)
    peers = Peers(calls, polls)
    for wait_seconds in (0, 10):
        with pytest.raises(PeerSilent):
            await peers.tail(URL, "t", 0, 0, max_rows=1, max_bytes=1, wait_seconds=wait_seconds)
    assert (calls.asked, polls.asked) == (1, 1)
    with pytest.raises(PeerSilent):
        await peers.seal(URL, "t", 0, 1, timeout_seconds=1)
    assert (calls.asked, polls.asked) == (2, 1)
    await peers.close()
    assert (calls.closed, polls.closed) == (1, 1)


async def test_one_transport_for_all_is_closed_once() -> None:
    transport = Transport(PeerAnswer(404, {}, b""))
    await Peers(transport, transport).close()
    assert transport.closed == 1


@pytest.mark.parametrize("kind", [DataMissing, CorruptFile])
async def test_the_object_that_another_broker_cannot_read_is_named(kind: type[UnreadableObject]) -> None:
    error = kind("x is gone", key="topics/t/x", segment=0, offset=3, next_offset=5)
    problem = problem_of(error)
    with pytest.raises(kind, match="x is gone") as told:
        await tail(Peers(Transport(PeerAnswer(problem.status, {}, problem.body()))))
    assert problem_of(told.value) == problem


async def test_so_is_one_that_keeps_a_part_of_a_request_from_being_stored() -> None:
    outcomes = [Refusal("data-damaged", "x is damaged", place={"key": "topics/t/x"})]
    transport = Transport(APPEND.pack(outcomes))
    rows = REF.schema.log.empty_table()
    [told] = await Peers(transport).append(URL, "t", 0, 1, rows, [Part(1, 1, None, False)])
    assert isinstance(told, CorruptFile) and (str(told), told.key) == ("x is damaged", "topics/t/x")
