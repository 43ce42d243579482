"""The id of a request: what is taken, and to what it belongs."""

import asyncio

import pytest

from filer import request_ids
from filer.clock import ManualClock


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(b"7f3c", id="short"),
        pytest.param(b"0191a3c4-7e0f-7c55-9f0e-1f1f2f3f4f5f", id="UUID"),
        pytest.param(b"Root=1-67891233-abcdef012345678912345678;Parent=53995c3f42cd8ad8", id="Amazon's"),
        pytest.param(b"x" * request_ids.MOST_CHARACTERS, id="as long as may be"),
    ],
)
def test_ids_of_clients_are_taken_as_they_are(given: bytes) -> None:
    assert request_ids.taken(given, of_broker=False) == given.decode()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"x" * (request_ids.MOST_CHARACTERS + 1), id="too long"),
        pytest.param(b"a b", id="space"),
        pytest.param(b"a\nlevel=error", id="line"),
        pytest.param(b"a\n", id="line at the end"),
        pytest.param(b'a"b', id="quote"),
        pytest.param(b"a,b", id="several"),
        pytest.param("schön".encode(), id="not ASCII"),
        pytest.param(b"\x1b[31m", id="escape"),
    ],
)
def test_what_does_not_belong_into_a_log_is_not_taken(given: bytes) -> None:
    assert request_ids.taken(given, of_broker=False) is None


def test_brokers_give_several_a_bounded_number() -> None:
    several = ",".join("x" * request_ids.MOST_CHARACTERS for _ in range(request_ids.MOST_TOGETHER))
    assert request_ids.taken(several.encode(), of_broker=True) == several
    assert request_ids.taken(f"{several},y".encode(), of_broker=True) is None


def test_ids_are_joined_once_each_and_not_too_many() -> None:
    assert request_ids.joined([None, "a", "b", "a", None]) == "a,b"
    assert request_ids.joined(["a,b", "b,c"]) == "a,b,c"
    assert request_ids.joined([None]) is None
    many = request_ids.joined(f"{number}" for number in range(100))
    assert many is not None and request_ids.taken(many.encode(), of_broker=True) == "0,1,2,3,4,5,6,7"


def test_an_id_ends_with_its_block() -> None:
    assert request_ids.current() is None
    with request_ids.within("outer"):
        with request_ids.within("inner"):
            assert request_ids.current() == "inner"
        with request_ids.within(None):
            assert request_ids.current() == "outer"
    assert request_ids.current() is None


async def test_a_task_that_outlives_its_request_belongs_to_nobody() -> None:
    told, gate = [request_ids.current()], asyncio.Event()

    async def outlive() -> None:
        told.append(request_ids.current())
        await gate.wait()
        told.append(request_ids.current())

    with request_ids.within("a"):
        task = asyncio.create_task(outlive())
        await asyncio.sleep(0)
    gate.set()
    await task
    assert told == [None, "a", None]


async def test_a_task_that_serves_many_belongs_to_nobody() -> None:
    async def tell() -> str | None:
        return request_ids.current()

    with request_ids.within("a"):
        assert await asyncio.create_task(tell(), context=request_ids.of_nobody()) is None


def test_work_that_is_part_of_a_request_keeps_its_id() -> None:
    clock = ManualClock()
    with request_ids.of_work(clock):
        own = request_ids.current()
    assert own is not None and len(own) == 26
    with request_ids.within("a"), request_ids.of_work(clock):
        assert request_ids.current() == "a"


def test_made_ids_differ_and_may_be_taken() -> None:
    clock = ManualClock()
    makers = [request_ids.maker(clock), request_ids.maker(clock)]
    made = [make() for _ in range(300) for make in makers]
    assert len(set(made)) == 600
    assert all(request_ids.taken(each.encode(), of_broker=False) == each for each in made)
