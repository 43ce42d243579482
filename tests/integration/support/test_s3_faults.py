"""The S3 server fails as it is told, and only then."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.store.s3_faults import S3Faults
from tests.support.store.s3_server import s3_server

SILENCE_SECONDS = 0.3
# moto only looks whether there is one.
SIGNED = {"authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server of this module's own: its faults would meet other tests'."""
    with s3_server() as endpoint:
        httpx.put(f"{endpoint}/bucket").raise_for_status()
        yield endpoint


@pytest.fixture
def faults(server: str) -> Iterator[S3Faults]:
    faults = S3Faults(server)
    yield faults
    faults.heal()


def put(server: str, name: str, data: bytes = b"data") -> int:
    return httpx.put(f"{server}/bucket/{name}", content=data, timeout=20).status_code


def is_there(server: str, name: str) -> bool:
    return httpx.get(f"{server}/bucket/{name}", headers=SIGNED, timeout=20).status_code == 200


def test_it_serves_well_before_and_after(server: str, faults: S3Faults) -> None:
    struck = faults.struck
    assert put(server, "well") == 200
    faults.unavailable()
    faults.heal()
    assert is_there(server, "well")
    assert faults.struck == struck


def test_unavailable(server: str, faults: S3Faults) -> None:
    struck = faults.struck
    faults.unavailable()
    answer = httpx.put(f"{server}/bucket/refused", content=b"x" * 1_000_000)
    assert (answer.status_code, b"SlowDown" in answer.content) == (503, True)
    assert httpx.head(f"{server}/bucket/refused").status_code == 503
    assert faults.struck == struck + 2
    faults.heal()
    assert not is_there(server, "refused")


def test_unavailable_after_it_took_effect(server: str, faults: S3Faults) -> None:
    faults.unavailable(after=True)
    assert put(server, "done") == 503
    faults.heal()
    assert is_there(server, "done")


@pytest.mark.parametrize("after", [False, True])
def test_hanging(server: str, faults: S3Faults, after: bool) -> None:
    name = f"hung {after}"
    struck = faults.struck
    faults.hang(after=after)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(put, server, name)
        while faults.struck == struck:
            time.sleep(0.01)
        with pytest.raises(TimeoutError):
            answer.result(SILENCE_SECONDS)
        faults.heal()
        assert answer.result(20) == 200
    assert is_there(server, name)


def test_an_answer_that_hangs_has_taken_effect(server: str, faults: S3Faults) -> None:
    faults.hang(after=True)
    with pytest.raises(httpx.ReadTimeout):
        httpx.put(f"{server}/bucket/taken", content=b"data", timeout=SILENCE_SECONDS)
    faults.slow_puts(0)
    assert is_there(server, "taken")


def test_slow_puts(server: str, faults: S3Faults) -> None:
    faults.slow_puts(0.3)
    began = time.monotonic()
    threads = [threading.Thread(target=put, args=(server, f"slow{n}")) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began >= 0.3
    assert min(seconds_to_read(server, "slow2") for _ in range(5)) < 0.3, "reads are slow too"


def seconds_to_read(server: str, name: str) -> float:
    began = time.monotonic()
    assert is_there(server, name)
    return time.monotonic() - began
