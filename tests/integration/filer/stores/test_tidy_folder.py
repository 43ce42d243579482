"""A directory without folders of the store's own: nothing of them stays, also after kills, and locks hold."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from filer.clock import SystemClock
from filer.stores.local.tidy_folder import TidyFolder
from tests.support.process.processes import REPOSITORY, child_environment
from tests.support.store.tidy_worker import opened

KEY = "state"
COUNTS = 60


def worker(root: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.store.tidy_worker", str(root), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment(), cwd=REPOSITORY)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir()) if root.exists() else []


async def test_nothing_stays_but_the_objects(tmp_path: Path) -> None:
    store = opened(tmp_path / "table")
    await store.create("a/b", b"1")
    await store.replace("a/b", b"2", etag=(await store.head("a/b")).etag)
    await store.create("a/c/d", b"3")
    await store.create("e/f/g", b"4")
    await store.delete(["a/c/d", "e/f/g"])
    await store.close()
    assert sorted(tmp_path.rglob("*")) == [tmp_path / path for path in ("table", "table/a", "table/a/b")]


async def test_a_directory_that_was_made_for_nothing_goes(tmp_path: Path) -> None:
    store = opened(tmp_path / "tables" / "table")
    assert [info async for info in store.list("")] == []
    await store.close()
    assert names(tmp_path) == []


async def test_who_has_it_open_keeps_its_folders_when_another_closes_it(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    await other.close()
    await one.create("a", b"1")
    await one.replace("a", b"2", etag=(await one.head("a")).etag)
    await one.close()
    assert names(tmp_path) == ["a"]


def test_what_a_living_process_has_is_left_alone(tmp_path: Path) -> None:
    living, other = (TidyFolder(tmp_path, SystemClock()) for _ in range(2))
    living.open()
    temp = Path(living.new_temp())
    temp.write_bytes(b"half")
    with living._try_lock(KEY) as held:
        other.open()
        with other._try_lock(KEY) as also:
            assert held and not also
        other.close()
    assert temp.exists()
    with other._try_lock(KEY) as held:
        assert held


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        *(("+open", nth) for nth in (1, 2, 4, 6)),
        *(("-unlink", nth) for nth in (1, 2, 3, 4)),
        ("+unlink", 3),
        ("+link", 1),
        ("-rename", 1),
        ("-rmdir", 1),
        ("-rmdir", 2),
        ("+makedirs", 1),
    ],
)
def test_what_a_killed_process_left_goes_once_another_opens_the_directory(tmp_path: Path, point: str, nth: int) -> None:
    process = worker(tmp_path, "killed", point, str(nth))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL and "survived" not in out
    after = TidyFolder(tmp_path, SystemClock())
    after.open()
    with after._try_lock("a") as held:
        assert held
    after.close()
    assert set(names(tmp_path)) <= {"a"}


async def test_of_many_processes_one_at_a_time_holds_a_lock_and_nothing_stays(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await store.create(KEY, b"0")
    await store.close()
    workers = [worker(tmp_path, "count", KEY, str(COUNTS)) for _ in range(3)]
    assert [each.wait(60) for each in workers] == [0, 0, 0]
    for each in workers:
        each.communicate()
    assert (tmp_path / KEY).read_bytes() == str(3 * COUNTS).encode()
    assert names(tmp_path) == [KEY]
