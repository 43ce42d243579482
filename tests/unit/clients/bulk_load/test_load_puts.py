"""Files of a bulk load on an object store, at presigned addresses: what the store's answers mean."""

import hashlib
from typing import Any

import httpx
import pyarrow as pa
import pytest

from braidmq import AsyncClient, FileTaken, Refused
from filer.bulk_load.load_files import LoadFile
from tests.support.instant_clock import InstantClock

URL = "http://127.0.0.1:8080"
STORE = "http://store:9000"
FILE = LoadFile(7, 0, 3, pa.py_buffer(b"the bytes of a file"))
MD5 = hashlib.md5(FILE.data, usedforsecurity=False).hexdigest()


def client_of(*answers: int, there: dict[str, Any] | None = None) -> tuple[AsyncClient, list[bytes]]:
    """A client whose store answers puts with these statuses, one after the other, and the list of what was put."""
    puts, left = list[bytes](), list(answers)

    def answered(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            puts.append(request.content)
            return httpx.Response(left.pop(0), text="<Error/>")
        target = {"uri": "s3://b/t", "url": f"{STORE}/file", "method": "PUT", "headers": {}, "there": there}
        return httpx.Response(200, json={"files": [target]})

    async def answer(request: httpx.Request) -> httpx.Response:
        await request.aread()
        return answered(request)

    return AsyncClient(URL, http_transport=httpx.MockTransport(answer), clock=InstantClock()), puts


@pytest.mark.parametrize("passing", [409, 502, 503, 504])
async def test_a_passing_refusal_is_tried_again(passing: int) -> None:
    client, puts = client_of(passing, passing, 200)
    async with client:
        assert (await client.put_load_file("t", "x", FILE)).count == 3
    assert puts == [FILE.data.to_pybytes()] * 3


@pytest.mark.parametrize("etag", [f'"{MD5}"', '"of-many-parts-3"'])
async def test_a_file_that_is_there_already_counts_as_put(etag: str) -> None:
    client, puts = client_of(412, there={"size": FILE.data.size, "etag": etag})
    async with client:
        await client.put_load_file("t", "x", FILE)
    assert len(puts) == 1


OTHERS = [
    {"size": FILE.data.size, "etag": "0" * 32},
    {"size": FILE.data.size + 1, "etag": MD5},
    {"size": FILE.data.size + 1, "etag": "of-many-parts-3"},
    None,
]


@pytest.mark.parametrize("there", OTHERS)
async def test_a_different_file_is_refused(there: dict[str, Any] | None) -> None:
    client, _ = client_of(412, there=there)
    async with client:
        with pytest.raises(FileTaken, match="other bytes"):
            await client.put_load_file("t", "x", FILE)


async def test_a_lasting_refusal_is_raised() -> None:
    client, puts = client_of(403)
    async with client:
        with pytest.raises(Refused, match="HTTP 403"):
            await client.put_load_file("t", "x", FILE)
    assert len(puts) == 1
