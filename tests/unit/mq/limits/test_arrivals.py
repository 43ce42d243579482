import asyncio

import pytest

from filer.clock import settle
from mq.base.errors import FrontStoreFull
from mq.limits.arrivals import Arrivals

KIB = 1024
LIMIT = 256 * KIB


def arriving(**bodies: int) -> Arrivals:
    made = Arrivals(LIMIT)
    for name, size_bytes in bodies.items():
        made.begin(name, 0)
        made.holds(name, size_bytes)
    return made


def test_the_first_goes_on_and_the_others_share_the_limit() -> None:
    bodies = arriving(first=64 * LIMIT, second=LIMIT // 2, third=LIMIT // 2)
    assert all(bodies.may_go_on(name) for name in ("first", "second", "third"))
    bodies.holds("third", LIMIT // 2 + 1)
    assert [bodies.may_go_on(name) for name in ("first", "second", "third")] == [True, False, False]
    bodies.end("first")
    assert bodies.may_go_on("second") and bodies.may_go_on("third")
    assert bodies.total_bytes == LIMIT + 1


def test_what_comes_unasked_is_bounded() -> None:
    bodies = arriving(first=64 * LIMIT, second=LIMIT)
    bodies.begin("third", LIMIT // 2)
    with pytest.raises(FrontStoreFull, match=f"at most {LIMIT} may"):
        bodies.begin("fourth", 1)
    assert bodies.total_bytes == 65 * LIMIT + LIMIT // 2
    bodies.end("second")
    bodies.begin("fourth", 1)


async def test_turns_are_given_in_order_and_no_more_than_there_is_room_for() -> None:
    bodies = arriving(first=LIMIT, second=LIMIT, third=64 * KIB, fourth=0, fifth=0)
    turns = {name: asyncio.create_task(bodies.turn(name)) for name in ("fifth", "fourth", "third", "second")}
    await settle()
    bodies.end("first")  # the second is the first now: it may go on, and there is room for three steps more
    await settle()
    assert all(turn.done() for turn in turns.values())
    turns = {name: asyncio.create_task(bodies.turn(name)) for name in ("fifth", "fourth", "third")}
    bodies.holds("third", LIMIT)
    await settle()
    bodies.end("second")
    await settle()
    assert turns.pop("third").done()
    bodies.holds("fourth", LIMIT)
    bodies.end("third")
    await settle()
    assert turns.pop("fourth").done()
    turns["fifth"].cancel()
    await asyncio.gather(*turns.values(), return_exceptions=True)
    bodies.end("fifth")
    bodies.end("fourth")
    assert bodies.total_bytes == 0
