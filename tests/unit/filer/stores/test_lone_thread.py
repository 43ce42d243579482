"""Calls on a thread of their own, one at a time."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from filer.stores.local.lone_thread import LoneThread


@pytest.fixture
def thread() -> LoneThread[int]:
    return LoneThread("lone")


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0)


async def test_calls_are_made_in_order_on_one_thread(thread: LoneThread[int]) -> None:
    calls: list[tuple[int, int]] = []

    def call(number: int) -> int:
        calls.append((number, threading.get_ident()))
        return number

    assert not thread.is_busy
    assert await asyncio.gather(*(thread.submit(call, number) for number in range(5))) == [*range(5)]
    assert [number for number, _ in calls] == [*range(5)]
    assert len({ident for _, ident in calls}) == 1
    assert calls[0][1] != threading.get_ident()
    assert not thread.is_busy
    thread.close()


async def test_an_error_is_that_of_the_call(thread: LoneThread[int]) -> None:
    def fails() -> int:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        await thread.submit(fails)
    assert await thread.submit(lambda: 3) == 3, "the thread goes on"
    thread.close()


async def test_a_call_nobody_waits_for_goes_on_and_keeps_the_thread_busy(thread: LoneThread[int]) -> None:
    may_end, ended = threading.Event(), threading.Event()

    def call() -> int:
        may_end.wait(10)
        ended.set()
        return 1

    made = thread.submit(call)
    made.cancel()
    with pytest.raises(asyncio.CancelledError):
        await made
    assert thread.is_busy and not ended.is_set()
    may_end.set()
    await until(lambda: not thread.is_busy)
    assert ended.is_set()
    thread.close()


async def test_closing_waits_for_calls_under_way(thread: LoneThread[int]) -> None:
    may_end = threading.Event()
    made = thread.submit(lambda: int(may_end.wait(10)))
    closing = asyncio.get_running_loop().run_in_executor(None, thread.close)
    await asyncio.sleep(0)
    assert not closing.done()
    may_end.set()
    await closing
    assert await made == 1


def test_a_loop_that_is_gone_wants_no_outcome(thread: LoneThread[int]) -> None:
    may_end = threading.Event()

    async def leave() -> None:
        thread.submit(lambda: int(may_end.wait(10)))

    asyncio.run(leave())
    may_end.set()
    thread.close()


async def test_what_a_call_was_about_is_let_go(thread: LoneThread[int]) -> None:
    class Large:
        pass

    large = Large()
    gone = weakref.ref(large)
    assert await thread.submit(lambda it: 1, large) == 1
    del large

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    await until(is_gone)
    thread.close()


def test_a_thread_that_never_began_is_closed(thread: LoneThread[int]) -> None:
    thread.close()
