"""Who but its owner may use a store in a directory: nobody, whatever the umask, unless its folder says so."""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from filer.clock import SystemClock
from filer.stores.local.local_store import LocalStore


@pytest.fixture(params=[0o000, 0o022, 0o002, 0o077], ids="{:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    mask: int = request.param
    before = os.umask(mask)
    yield mask
    os.umask(before)


@asynccontextmanager
async def opened(root: Path, *, tidies_up: bool = False) -> AsyncIterator[LocalStore]:
    store = LocalStore(root, clock=SystemClock(), tidies_up=tidies_up)
    try:
        yield store
    finally:
        await store.close()


async def write_all_kinds(store: LocalStore) -> None:
    """By every call that writes: data, a record that is replaced, a stream."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"streamed"

    await store.create("topics/t/data", b"x")
    await store.create("topics/t/record", b"before")
    await store.replace("topics/t/record", b"after", etag=(await store.head("topics/t/record")).etag)
    await store.create_from_stream("topics/t/payloads/one", chunks(), size_bytes=8, sha256=None)


def modes(root: Path) -> dict[str, int]:
    """Of all that is there; the root is the empty name."""
    found = {str(each.relative_to(root)): stat.S_IMODE(each.stat().st_mode) for each in root.rglob("*")}
    return {"": stat.S_IMODE(root.stat().st_mode), **found}


async def test_a_store_is_for_its_owner_alone_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with opened(root) as store:
        await write_all_kinds(store)
    found = modes(root)
    assert {"topics/t/data", "topics/t/record", "topics/t/payloads/one", ".tmp", ".locks"} < found.keys()
    assert {name for name, mode in found.items() if mode & 0o077} == set()


def store_of_an_earlier_version(root: Path) -> None:
    for folder in (".tmp", ".locks", "topics/t"):
        (root / folder).mkdir(parents=True)
    (root / "topics/t/data").write_bytes(b"x")
    for each in (root, *root.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)


async def test_a_store_that_others_could_read_is_closed_once_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "root"
    store_of_an_earlier_version(root)
    async with opened(root) as store:
        assert (await store.get("topics/t/data")).data == b"x"
    found = modes(root)
    assert (found[""], found[".tmp"], found[".locks"]) == (0o700,) * 3
    told = [record.getMessage() for record in caplog.records if "store_closed_to_others" in record.getMessage()]
    assert any(f"path={root} " in line and "mode_before=0755" in line and "mode=0700" in line for line in told), told
    caplog.clear()
    root.chmod(0o755)
    async with opened(root):
        pass
    # Somebody has opened it since: that is theirs to decide.
    assert modes(root)[""] == 0o755 and not caplog.records


async def test_a_folder_that_is_open_to_its_group_has_objects_that_the_group_reads(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o2750)
    before = os.umask(0o022)
    try:
        async with opened(root) as store:
            await write_all_kinds(store)
    finally:
        os.umask(before)
    found = modes(root)
    own = {name: mode for name, mode in found.items() if name.startswith(".")}
    assert {mode & 0o777 for mode in own.values()} == {0o700, 0o600}
    objects = {name: mode & 0o777 for name, mode in found.items() if name not in own and name}
    assert objects["topics/t/data"] == objects["topics/t/record"] == objects["topics/t/payloads/one"] == 0o640
    assert objects["topics"] == objects["topics/t"] == 0o750


async def test_a_folder_with_files_of_other_programs_is_left_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "public").mkdir(parents=True)
    for folder in (home, home / "public"):
        folder.chmod(0o755)
    for number in range(2):
        async with opened(home) as store:
            await store.create(f"topics/{number}", b"x")
    found = modes(home)
    assert found[""] == found["public"] == 0o755
    assert {mode & 0o077 for name, mode in found.items() if name.startswith(("topics", "."))} == {0}


async def test_a_table_is_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        async with opened(tmp_path / "table", tidies_up=True) as store:
            await store.create("data/one.parquet", b"x")
    finally:
        os.umask(before)
    assert modes(tmp_path / "table") == {"": 0o755, "data": 0o755, "data/one.parquet": 0o644}
