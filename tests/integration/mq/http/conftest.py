from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from filer.clock import SystemClock
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import HttpBroker, http_broker


@pytest.fixture(params=["memory", "local"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HttpBroker]:
    """A broker on each kind of store that needs no other process. One of the two has no fast path for publishes."""
    in_memory = request.param == "memory"
    store = MemoryStore() if in_memory else LocalStore(tmp_path / "data", clock=SystemClock())
    async with http_broker(store, is_fast=in_memory) as running:
        yield running


@pytest.fixture
async def memory_broker(is_fast: bool) -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore(), is_fast=is_fast) as running:
        yield running


@pytest.fixture
def is_fast() -> bool:
    """Whether publishes may take the fast path; modules that test publishing have both."""
    return True
