"""Requests that wait for a transition."""

import gc
import weakref

import pytest

from filer.clock import SystemClock
from filer.errors import InvalidInput
from filer.stores.decorators.store_health import StoreHealth
from mq.transitions.patience import Patience


class Held:
    """Something that a request holds."""


async def test_what_failed_holds_nothing_once_it_is_answered() -> None:
    """No garbage has to be collected for it: 3,000 refused acks of 50 KB took 1.4 GB until it was."""
    patience = Patience(SystemClock(), StoreHealth(SystemClock()), 5)
    held = Held()
    seen = weakref.ref(held)

    async def work(held: Held) -> None:
        raise InvalidInput(str(held))

    gc.disable()
    try:
        with pytest.raises(InvalidInput):
            await patience.wait(work(held), "work")
        del held
        assert seen() is None
    finally:
        gc.enable()
