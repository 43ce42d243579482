import threading
from collections.abc import Iterator

import pytest

from mq.cli.publishing.read_ahead import read_ahead


async def test_the_next_item_is_made_while_the_last_one_is_in_use() -> None:
    made = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for each in range(3):
            yield each
            made.release()

    seen = []
    async for item in read_ahead(items()):
        assert made.acquire(timeout=10)  # what follows the item has run, though it has not been asked for
        seen.append(item)
    assert seen == [0, 1, 2]


async def test_nothing_is_nothing_and_errors_arrive() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("oops")

    assert [item async for item in read_ahead(iter([]))] == []
    seen = []
    with pytest.raises(ValueError, match="oops"):
        async for item in read_ahead(broken()):
            seen.append(item)
    assert seen == [1]


async def test_a_thread_that_waits_for_ever_does_not_hold_up_the_end() -> None:
    waiting = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        waiting.wait(60)
        yield 2

    async for _ in read_ahead(items()):
        break
    threads = [thread for thread in threading.enumerate() if thread.name == "mq read-ahead"]
    assert all(thread.daemon for thread in threads)
    waiting.set()
    for thread in threads:
        thread.join(10)
