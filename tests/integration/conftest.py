from collections.abc import Iterator

import httpx
import pytest
from ulid import ULID

from tests.support.s3_server import S3_ENVIRONMENT, s3_server


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
