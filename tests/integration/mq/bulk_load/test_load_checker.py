"""The process in which files of a load are opened: bounded in memory and time, and gone afterwards."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from filer.bulk_load.load_check import FileClaim
from filer.bulk_load.load_files import LoadFile, load_files
from filer.bulk_load.load_segment import LoadSegment
from filer.errors import LoadRefused, OutcomeUnknown
from filer.format.schema import MessageSchema
from filer.stores.memory_store import MemoryStore
from mq.bulk_load import load_checker
from mq.bulk_load.load_checker import SHORT_WAIT_SECONDS, LoadChecker, PinnedFile, kill_group
from tests.support.broker.broker_process import broker_environment
from tests.support.topic.broken_load_files import rewritten, with_column

MIB = 1024 * 1024
SEGMENT = LoadSegment("x", 7, 0, 65_536, 5)
OF_JSON = replace(SEGMENT, schema=MessageSchema.of("binary", "json"))
KEY = "topics/t/segments/segment=7/0.parquet"


def file_of(count: int = 100, key: bytes = b"k") -> LoadFile:
    (file,) = load_files([pa.table({"key": [key] * count, "value": [b"v"] * count})], SEGMENT, file_bytes=1 << 40)
    return file


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    yield MemoryStore()
    assert children() == []


def children() -> list[int]:
    """Processes of ours that have not ended, or that nobody has waited for."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
            command = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        if parent == os.getpid() and b"mq.bulk_load.load_check_process" in command:
            found.append(int(status.parent.name))
    return found


async def pinned(store: MemoryStore, data: bytes, count: int = 100, key: str = KEY) -> PinnedFile:
    await store.create(key, data)
    info = await store.head(key)
    return PinnedFile(key, info.etag, FileClaim(7, 0, count, info.size_bytes), SEGMENT)


async def test_one_process_for_all_files(store: MemoryStore) -> None:
    good = file_of().data.to_pybytes()
    files = [await pinned(store, good, key=f"{KEY}-{n}") for n in range(3)]
    await LoadChecker(store).check(files)
    bad = await pinned(store, good[:-1], key=f"{KEY}-bad")
    with pytest.raises(LoadRefused, match=r"0\.parquet-bad: it is not a whole Parquet file"):
        await LoadChecker(store).check([*files, bad])


async def test_no_more_memory_than_it_may_take(store: MemoryStore) -> None:
    """Keys of 60 MB in a row group, of which a file of some kilobytes inflates; here half of that is allowed."""
    data = rewritten(file_of(60, bytes(MIB)))
    assert len(data) < 100_000
    file = await pinned(store, data, 60)
    await LoadChecker(store).check([file])
    with pytest.raises(LoadRefused, match="memory"):
        await LoadChecker(store, limit_bytes=30 * MIB).check([file])


async def test_values_are_not_inflated(store: MemoryStore) -> None:
    """They are what most of a file is, and only their pages' headers are looked at."""
    (file,) = load_files([pa.table({"value": [bytes(MIB)] * 60})], SEGMENT, file_bytes=1 << 40)
    found = await pinned(store, rewritten(file), 60)
    await LoadChecker(store, limit_bytes=30 * MIB).check([found])


async def test_what_is_too_large_by_its_own_footer(store: MemoryStore) -> None:
    """An honest one, by its footer: 200 MiB of zeros in a row group of some kilobytes."""
    data = rewritten(file_of(1), with_column("value", lambda table: [bytes(200 * MIB)]))
    assert len(data) < 100_000
    with pytest.raises(LoadRefused, match="a row group claims 2097"):
        await LoadChecker(store).check([await pinned(store, data, 1)])


async def test_no_more_processor_time_than_it_may_take(store: MemoryStore) -> None:
    """Sixty megabytes of keys take some hundredths of a second."""
    file = await pinned(store, rewritten(file_of(60, bytes(MIB))), 60)
    await LoadChecker(store).check([file])
    with pytest.raises(LoadRefused, match=r"more than 0\.005 s of processor time"):
        await LoadChecker(store, cpu_seconds=0.005).check([file])


def test_killing_a_process_that_has_ended_leaves_its_exit_code_to_who_waits() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"], start_new_session=True)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    kill_group(process.pid)
    assert os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1]) == 7
    kill_group(process.pid)
    process.returncode = 7


async def test_a_process_that_has_no_turn_says_nothing_against_the_file(store: MemoryStore) -> None:
    file = await pinned(store, file_of().data.to_pybytes())
    with pytest.raises(OutcomeUnknown, match=r"silent for 0\.001 s: .* commit again"):
        await LoadChecker(store, silent_seconds=0.001).check([file])


async def test_a_file_that_changes_while_it_is_read(store: MemoryStore) -> None:
    file = await pinned(store, file_of().data.to_pybytes())
    await store.delete([KEY])
    with pytest.raises(LoadRefused, match="it is gone"):
        await LoadChecker(store).check([file])
    await store.create(KEY, file_of(101).data.to_pybytes())
    with pytest.raises(LoadRefused, match="it has changed while it was checked"):
        await LoadChecker(store).check([file])


def test_it_ends_with_its_input() -> None:
    """A broker that is killed leaves none behind."""
    command = [sys.executable, "-m", "mq.bulk_load.load_check_process", "1000000", "60", "60"]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False, env=broker_environment({})
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def small_file_of_95_mb() -> bytes:
    """Values of JSON that compress to some kilobytes, and take seconds to look at."""
    (file,) = load_files([pa.table({"value": ["0"] * 96})], OF_JSON, file_bytes=1 << 40)
    change = with_column("value", lambda _: ["[" + "[]," * 330_000 + "[]]"] * 96)
    return rewritten(file, lambda table: OF_JSON.schema.in_file(change(table)), rows_each=48)


async def pinned_of_json(store: MemoryStore, data: bytes, count: int, key: str) -> PinnedFile:
    file = await pinned(store, data, count, key)
    return replace(file, segment=OF_JSON)


async def test_loads_that_take_long_keep_no_short_one_waiting(store: MemoryStore) -> None:
    """Two of some kilobytes kept a load of one row waiting for 30 s."""
    data = small_file_of_95_mb()
    assert len(data) < 200_000
    checker = LoadChecker(store)
    hostile = [await pinned_of_json(store, data, 96, f"{KEY}-{number}") for number in range(8)]
    attacks = [asyncio.create_task(checker.check(hostile, "mallory")) for _ in range(2)]
    await asyncio.sleep(0)
    good = await pinned(store, file_of().data.to_pybytes(), key=f"{KEY}-good")
    began_seconds = asyncio.get_running_loop().time()
    try:
        await checker.check([good], "ann")
        assert not any(attack.done() for attack in attacks)
        assert asyncio.get_running_loop().time() - began_seconds < 3 * SHORT_WAIT_SECONDS
    finally:
        for attack in attacks:
            attack.cancel()
        await asyncio.gather(*attacks, return_exceptions=True)


async def test_a_load_has_as_much_processor_time_as_it_is_large(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_checker, "SHORT_SECONDS", 1)
    monkeypatch.setattr(load_checker, "LONG_SECONDS", 1)
    data = small_file_of_95_mb()
    hostile = [await pinned_of_json(store, data, 96, f"{KEY}-{number}") for number in range(8)]
    with pytest.raises(LoadRefused, match=r"0\.parquet-\d: the load takes more processor time .* 1 s and 4 s for each"):
        await LoadChecker(store).check(hostile)
