from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from ulid import ULID

from filer.clock import SystemClock
from filer.stores.local.local_store import LocalStore
from filer.stores.open_store import open_store
from filer.stores.store_address import StoreAddress
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.store.s3_server import S3_ENVIRONMENT, s3_server


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The URL of a moto server; its credentials are in the environment."""
    with pytest.MonkeyPatch.context() as patch, s3_server() as url:
        for name, value in S3_ENVIRONMENT.items():
            patch.setenv(name, value)
        yield url


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> str:
    """The name of a new bucket at `s3_endpoint`."""
    bucket = f"test-{ULID()}".lower()
    httpx.put(f"{s3_endpoint}/{bucket}").raise_for_status()
    return bucket


@pytest.fixture(params=["local", "s3"])
async def broker_on_each_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HttpBroker]:
    """A broker on a directory, and one on S3, which gives clients signed addresses."""
    if request.param == "local":
        running = http_broker(LocalStore(tmp_path / "data", clock=SystemClock()))
    else:
        url = f"s3://{request.getfixturevalue('s3_bucket')}/prefix"
        endpoint = request.getfixturevalue("s3_endpoint")
        running = http_broker(open_store(StoreAddress(url, endpoint), SystemClock()), store=url)
    async with running as made:
        yield made
