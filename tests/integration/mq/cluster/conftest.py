from collections.abc import AsyncIterator

import pytest

from tests.support.cluster.http_cluster import HttpCluster


@pytest.fixture
async def brokers() -> AsyncIterator[HttpCluster]:
    """Three brokers of one cluster, `a`, `b` and `c`."""
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b", "c")
        yield cluster
    finally:
        await cluster.stop_all()
