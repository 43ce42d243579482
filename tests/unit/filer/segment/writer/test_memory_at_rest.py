"""What an owner holds of messages once they are stored: nothing."""

import gc
import weakref
from typing import Any

import pytest

from filer.segment.next_file import Single
from filer.segment.segment_log import SegmentRef
from tests.support.segment.segment_world import SegmentWorld

REF = SegmentRef("events", 0)


class Watched(Single):
    """A message of which one can see whether it is gone."""

    __slots__ = ("__weakref__",)


@pytest.mark.parametrize("count", [1, 3])
async def test_stored_messages_are_not_held(count: int) -> None:
    """Nobody counts them any more: a broker with many segments would hold the last file of each."""
    world = SegmentWorld(REF)
    writer = world.open_writer()
    messages = [Watched(None, b"%d" % number, None, None) for number in range(count)]
    watched: list[weakref.ref[Any]] = [weakref.ref(message) for message in messages]
    waiters = [writer.append(message, 1) for message in messages]
    await world.pass_seconds(60)
    for waiter in waiters:
        waiter.result()
    messages.clear()
    gc.collect()
    assert [each() for each in watched] == [None] * count
    await world.close()
