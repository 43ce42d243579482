from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from filer.clock import SystemClock
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import HttpBroker, http_broker


@pytest.fixture(params=["memory", "local"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HttpBroker]:
    """A broker on each kind of store that needs no other process."""
    store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "data", clock=SystemClock())
    async with http_broker(store) as running:
        yield running


@pytest.fixture
async def memory_broker() -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore()) as running:
        yield running
