"""No request is served twice, and remembering that takes bounded memory."""

import pytest

from mq.peer_keys.seen_requests import BLOCKS, MOST_SENDERS, NUMBERS_PER_BLOCK, SeenRequests

WINDOW_US = 1000
NUMBERS = BLOCKS * NUMBERS_PER_BLOCK


def test_each_number_is_taken_once_in_any_order() -> None:
    seen = SeenRequests(WINDOW_US)
    numbers = [5, 3, NUMBERS_PER_BLOCK, 4, NUMBERS_PER_BLOCK - 1, 0]
    assert all(seen.take("a", number, 0, now_us=0) for number in numbers)
    assert not any(seen.take("a", number, 0, now_us=0) for number in numbers)
    assert seen.take("b", 5, 0, now_us=0), "another process has numbers of its own"


def test_a_number_below_the_window_counts_as_seen() -> None:
    seen = SeenRequests(WINDOW_US)
    assert seen.take("a", NUMBERS, 0, now_us=0)
    assert not seen.take("a", NUMBERS_PER_BLOCK - 1, 0, now_us=0)
    assert seen.take("a", NUMBERS_PER_BLOCK, 0, now_us=0)


@pytest.mark.parametrize("step", [1, NUMBERS_PER_BLOCK, 10**15])
def test_a_process_takes_bounded_memory(step: int) -> None:
    seen = SeenRequests(WINDOW_US)
    for n in range(3 * BLOCKS):
        assert seen.take("a", n * step, 0, now_us=0)
    [window] = seen._windows.values()
    assert len(window._blocks) <= BLOCKS
    assert not seen.take("a", 3 * BLOCKS * step - step, 0, now_us=0), "the last one is known"


def test_only_processes_of_which_nothing_can_come_again_are_forgotten() -> None:
    seen = SeenRequests(WINDOW_US)
    for n in range(MOST_SENDERS):
        assert seen.take(f"life-{n}", 0, n, now_us=n)
    assert not seen.take("one more", 0, 1000, now_us=1000), "all of them may still be replayed"
    assert seen.take("one more", 0, WINDOW_US + 1, now_us=WINDOW_US + 1)
    assert len(seen._windows) == MOST_SENDERS
    assert not seen.take("life-1", 0, 1, now_us=WINDOW_US + 1), "the second is remembered still"
    assert seen.take("life-0", 1, WINDOW_US + 3, now_us=WINDOW_US + 3), "the first makes room for itself"
