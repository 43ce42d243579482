"""The newest file of an open segment is damaged, and its owner is gone: readers get what is before it, and are told.

Its footer cannot be read, so nothing shows how many messages it has.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from filer import keys
from filer.clock import SystemClock
from filer.keys import FileName
from filer.stores.local.local_store import LocalStore
from filer.stores.store_address import StoreAddress
from tests.cluster.faults.trials.trial_readers import READERS, Address, Reading, read_by, read_segment
from tests.cluster.faults.trials.trial_topic import Expected
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.topic.segment_files import value_of
from tests.support.topic.stored_topic import TOPIC, store_topic

LAST = keys.segment_file(TOPIC, 0, FileName(4))
KEPT = {(0, offset): value_of(offset) for offset in range(4)}
WITH_IT: dict[tuple[int, int], bytes | None] = {(0, offset): value_of(offset) for offset in range(6)}
# Compaction leaves the end of an open segment alone.
ALL_READERS = sorted(READERS.keys() - {"compaction"})
LONG_AGO = (0, 0)


@pytest.fixture
async def whole(tmp_path: Path) -> Path:
    await store_topic(tmp_path / "data", sealed={}, still_open=(2, 2, 2))
    # Its owner is gone for long, and takes it for no proof any more.
    os.utime(tmp_path / "data" / LAST, LONG_AGO)
    return tmp_path / "data"


@pytest.fixture(params=["a bit of its footer", "its last bytes"])
def damaged(whole: Path, request: pytest.FixtureRequest) -> Path:
    data = bytearray((whole / LAST).read_bytes())
    if request.param == "its last bytes":
        del data[-100:]
    else:
        data[-300] ^= 4
    (whole / LAST).write_bytes(data)
    os.utime(whole / LAST, LONG_AGO)
    return whole


@pytest.fixture
async def broker(damaged: Path) -> AsyncIterator[HttpBroker]:
    async with http_broker(LocalStore(damaged, clock=SystemClock())) as broker:
        yield broker


def address(broker: HttpBroker, root: Path) -> Address:
    return Address(broker.url, broker.client, StoreAddress(str(root)))


@pytest.mark.parametrize("name", ALL_READERS)
async def test_every_reader_is_told(broker: HttpBroker, damaged: Path, name: str) -> None:
    reading = await read_by(name, READERS[name], address(broker, damaged), Expected(dict(WITH_IT)))
    check(reading, whole_or_nothing=name == "export")


async def test_whoever_reads_the_segment_is_told(broker: HttpBroker, damaged: Path) -> None:
    reading, problem = await read_segment(address(broker, damaged), 0)
    check(reading)
    assert (problem["key"], problem["offset"]) == (LAST, 4)


def check(reading: Reading, *, whole_or_nothing: bool = False) -> None:
    assert reading.error is not None and LAST in reading.error
    assert dict(reading.found) == ({} if whole_or_nothing else KEPT)


async def test_pages_of_files_end_there_and_the_next_one_says_why(broker: HttpBroker) -> None:
    for path, follow in ((f"/v1/topics/{TOPIC}/files", "after"), (f"/v1/topics/{TOPIC}/segments/0/files", "offset")):
        page = (await broker.client.get(path)).json()
        assert [file["end_offset"] for file in page["files"]] == [2, 4]
        following = page.get("next") or page["next_offset"]
        answer = await broker.client.get(path, params={follow: following})
        problem = check_problem(answer, 503, "data-damaged", LAST)
        assert (problem["segment"], problem["offset"]) == (0, 4)
    # Behind it, nothing is known of this segment. The list goes on with the next one, of which there is none.
    assert (await broker.client.get(f"/v1/topics/{TOPIC}/files", params={"after": "1-0"})).json()["files"] == []


async def test_up_to_what_is_known_of_it_nothing_is_missing(broker: HttpBroker) -> None:
    path = f"/v1/topics/{TOPIC}/segments/0/files"
    page = (await broker.client.get(path, params={"end_offset": 4})).json()
    assert [file["end_offset"] for file in page["files"]] == [2, 4]
    assert page["next_offset"] is None


async def test_a_damaged_seal_keeps_no_message_from_anybody(tmp_path: Path) -> None:
    """It is told, and once it is put back it is told no more."""
    root, seal = tmp_path / "data", keys.segment_file(TOPIC, 0, FileName(4))
    await store_topic(root, sealed={0: [2, 2]}, still_open=(2,))
    data = (root / seal).read_bytes()
    (root / seal).write_bytes(data[:-50])
    everything = Expected({**KEPT, (1, 0): value_of(0), (1, 1): value_of(1)})
    async with http_broker(LocalStore(root, clock=SystemClock())) as broker:
        for name in ALL_READERS:
            reading = await read_by(name, READERS[name], address(broker, root), everything)
            assert (reading.error, reading.complaints(everything)) == (None, [])
        assert [each["key"] for each in await told(broker)] == [seal]
        (root / seal).write_bytes(data)
        async with asyncio.timeout(20):
            while await told(broker):
                await asyncio.sleep(0.05)


async def told(broker: HttpBroker) -> list[dict[str, str]]:
    damaged: list[dict[str, str]] = (await broker.client.get(f"/v1/topics/{TOPIC}")).json()["damaged"]
    return damaged
