"""What a serving process has loaded is no more looked at by the garbage collector."""

import asyncio
import gc

from filer.clock import ManualClock, settle
from mq.process.garbage import FULL_SECONDS, collect_all_seldom, collect_less_often, spare_what_is_loaded


def test_what_is_there_is_spared_and_what_comes_is_not() -> None:
    there: list[object] = []
    # What is spared stays so: every later collection in this process would go through all tests.
    spare_what_is_loaded()
    collected = {id(each) for each in gc.get_objects()}
    coming: list[object] = []
    assert id(there) not in collected
    assert any(each is coming for each in gc.get_objects())


def test_however_the_process_began_it_collects_as_often_as_python_does() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(50_000)
        spare_what_is_loaded()
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.set_threshold(*before)


def test_requests_under_way_bring_no_collection() -> None:
    before, began = gc.get_threshold(), []
    gc.callbacks.append(notice := lambda phase, _: began.append(phase))
    try:
        collect_less_often()
        gc.collect()
        began.clear()
        under_way = [[] for _ in range(1_500)]  # type: list[list[object]]
        assert not began
        under_way += [[] for _ in range(1_500)]
        assert began
    finally:
        gc.callbacks.remove(notice)
        gc.set_threshold(*before)


async def test_full_collections_come_once_in_a_while_however_much_there_is_to_collect() -> None:
    before, clock = gc.get_threshold(), ManualClock()
    collections = 1_000_000
    gc.set_threshold(700, 10, 10)
    running = asyncio.create_task(collect_all_seldom(clock))
    try:
        await settle()
        for _ in range(2):
            assert gc.get_threshold()[2] > collections
            await clock.advance(FULL_SECONDS - 2)
            assert gc.get_threshold()[2] > collections
            await clock.advance(3)
            assert gc.get_threshold() == (700, 10, 10), "Python says whether one is worth it"
            gc.collect()
        gc.set_threshold(700, 10, 10)
        gc.collect(1)
        assert gc.get_threshold() == (700, 10, 10), "others do not count"
        gc.collect()
        assert gc.get_threshold()[2] > collections
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        after = gc.get_threshold()
        gc.set_threshold(*before)
    assert after == (700, 10, 10)
    assert not [each for each in gc.callbacks if "collected" in repr(each)]
