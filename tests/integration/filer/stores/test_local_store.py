import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from filer.clock import SystemClock
from filer.errors import EtagMismatch, ObjectExists, OutcomeUnknown, StoreError, StoreRefused
from filer.stores.local.durable_file import write_durable_later
from filer.stores.local.local_store import LocalStore
from filer.stores.local.object_folder import LOCK_STRIPES
from tests.support.process.processes import REPOSITORY, child_environment
from tests.support.store.store_worker import NEW, OLD


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[LocalStore]:
    made = LocalStore(root, clock=SystemClock(), lock_timeout_seconds=0.2)
    yield made
    await made.close()


def start_worker(root: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.store.store_worker", str(root), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
        cwd=REPOSITORY,
    )


def temp_files(root: Path) -> list[Path]:
    return list((root / ".tmp").iterdir())


async def keys_of(store: LocalStore, prefix: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix)]


async def test_of_many_processes_one_creates(store: LocalStore, root: Path) -> None:
    workers = [start_worker(root, "create", "race/", "60", f"worker{number}") for number in range(3)]
    outputs = [worker.communicate(timeout=60)[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert sorted(int(number) for output in outputs for number in output) == list(range(60))
    for name, output in enumerate(outputs):
        for number in output:
            assert (await store.get(f"race/{number}")).data == f"worker{name} {number}".encode()


async def test_compare_and_swap_holds_across_processes(store: LocalStore, root: Path) -> None:
    await store.create("counter", b"0")
    workers = [start_worker(root, "count", "counter", "40") for _ in range(3)]
    assert [worker.communicate(timeout=60) and worker.returncode for worker in workers] == [0, 0, 0]
    assert (await store.get("counter")).data == b"120"


# The nth system call of that name from where the operation begins: `-` kills before it, `+` after, `/` halfway.
CREATE_POINTS = [
    ("-open", 1),
    ("+open", 1),
    ("/write", 1),
    ("+write", 1),
    ("+fsync", 1),
    ("+close", 1),
    ("-link", 1),
    ("+link", 1),
    ("+unlink", 1),
    ("-fsync", 2),
    ("+fsync", 2),
]


def kill_at(root: Path, operation: str, point: str, nth: int) -> None:
    worker = start_worker(root, "killed", operation, point, str(nth))
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == -signal.SIGKILL, output


async def assert_whole_or_absent(store: LocalStore, root: Path, key: str, *, present: bool) -> None:
    assert (root / key).exists() == present
    for path in root.glob("**/*.parquet"):
        assert path.read_bytes() in (OLD, NEW)
    assert await keys_of(store, key) == ([key] if present else [])
    if present:
        with pytest.raises(ObjectExists):
            await store.create(key, NEW)
    else:
        await store.create(key, NEW)
    assert (await store.get(key)).data == NEW


@pytest.mark.parametrize(("point", "nth"), CREATE_POINTS)
async def test_killed_create_shows_all_or_nothing(store: LocalStore, root: Path, point: str, nth: int) -> None:
    await store.create("folder/old.parquet", OLD)
    kill_at(root, "create", point, nth)
    linked = (point, nth) in CREATE_POINTS[CREATE_POINTS.index(("+link", 1)) :]
    assert len(temp_files(root)) <= 1
    await assert_whole_or_absent(store, root, "folder/new.parquet", present=linked)


@pytest.mark.parametrize(("point", "nth"), [("-link", 1), ("-mkdir", 3), ("+mkdir", 3), ("-link", 2), ("+link", 2)])
async def test_killed_create_in_new_folders(store: LocalStore, root: Path, point: str, nth: int) -> None:
    await store.create("folder/old.parquet", OLD)
    kill_at(root, "create_deep", point, nth)
    await assert_whole_or_absent(store, root, "some/new/folders/new.parquet", present=(point, nth) == ("+link", 2))


@pytest.mark.parametrize(
    ("point", "nth", "linked"),
    [("/write", 1, False), ("+write", 1, False), ("-link", 1, False), ("+link", 1, True), ("+fsync", 2, True)],
)
async def test_killed_stream_shows_all_or_nothing(
    store: LocalStore, root: Path, point: str, nth: int, linked: bool
) -> None:
    await store.create("folder/old.parquet", OLD)
    kill_at(root, "stream", point, nth)
    await assert_whole_or_absent(store, root, "folder/new.parquet", present=linked)


@pytest.mark.parametrize(
    ("point", "nth", "replaced"),
    [
        ("-open", 1, False),
        ("+open", 2, False),
        ("/write", 1, False),
        ("+fsync", 1, False),
        ("-rename", 1, False),
        ("+rename", 1, True),
        ("-fsync", 2, True),
        ("+fsync", 2, True),
    ],
)
async def test_killed_replace_leaves_old_or_new(
    store: LocalStore, root: Path, point: str, nth: int, replaced: bool
) -> None:
    await store.create("folder/old.parquet", OLD)
    kill_at(root, "replace", point, nth)
    fetched = await store.get("folder/old.parquet")
    assert fetched.data == (NEW if replaced else OLD)
    # The lock died with its holder.
    await store.replace("folder/old.parquet", b"next", etag=fetched.info.etag)
    assert (await store.get("folder/old.parquet")).data == b"next"


async def test_old_temporary_files_are_swept(store: LocalStore, root: Path) -> None:
    old, fresh = root / ".tmp" / "old", root / ".tmp" / "fresh"
    for path in (old, fresh):
        path.write_bytes(b"half")
    an_hour_ago = time.time() - 3700
    os.utime(old, (an_hour_ago, an_hour_ago))
    await LocalStore(root, clock=SystemClock()).close()
    assert temp_files(root) == [fresh]


async def test_no_temporary_file_stays(store: LocalStore, root: Path) -> None:
    await store.create("key", b"1")
    with pytest.raises(ObjectExists):
        await store.create("key", b"2")
    etag = (await store.head("key")).etag
    await store.replace("key", b"3", etag=etag)
    with pytest.raises(EtagMismatch):
        await store.replace("key", b"4", etag=etag)
    assert temp_files(root) == []


def path_of_open(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def watch(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls that matter for durability, with the path each was for, in order."""
    calls: list[tuple[str, str]] = []

    def watched(name: str, path_of: Callable[[Any], str]) -> None:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            calls.append((name, path_of(args)))
            return real(*args)

        monkeypatch.setattr(os, name, call)

    watched("fsync", lambda args: path_of_open(args[0]))
    watched("link", lambda args: str(args[1]))
    watched("rename", lambda args: str(args[1]))
    return calls


async def test_create_is_durable_before_it_returns(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = watch(monkeypatch)
    await store.create("a/b/one", b"1")
    temp, first_try, second_try, *folders = calls
    assert temp[0] == "fsync" and Path(temp[1]).parent == root / ".tmp"
    assert first_try == second_try == ("link", f"{root}/a/b/one")
    assert folders == [("fsync", str(path)) for path in (root / "a/b", root / "a", root)]
    calls.clear()
    await store.create("a/b/two", b"2")
    assert calls[1:] == [("link", f"{root}/a/b/two"), ("fsync", f"{root}/a/b")]
    calls.clear()
    await store.create("a/c/d/three", b"3")
    # The name of `a` is durable, so the folder that has it need not be synced again.
    assert calls[3:] == [("fsync", str(path)) for path in (root / "a/c/d", root / "a/c", root / "a")]


async def test_exists_is_answered_only_when_that_is_durable(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create("folder/other", b"x")
    real = os.fsync

    def failing(fd: int) -> None:
        if path_of_open(fd) == f"{root}/folder":
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", failing)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="Input/output error"):
            await store.create("folder/key", b"1")
    monkeypatch.setattr(os, "fsync", real)
    with pytest.raises(ObjectExists):
        await store.create("folder/key", b"1")


async def test_replace_is_durable_before_it_returns(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create("folder/key", b"1")
    etag = (await store.head("folder/key")).etag
    calls = watch(monkeypatch)
    await store.replace("folder/key", b"2", etag=etag)
    assert calls[0][0] == "fsync" and Path(calls[0][1]).parent == root / ".tmp"
    assert calls[1:] == [("rename", f"{root}/folder/key"), ("fsync", f"{root}/folder")]


async def test_etag_never_comes_back(store: LocalStore) -> None:
    await store.create("key", b"0")
    seen = [(await store.head("key")).etag]
    for number in range(200):
        seen.append(await store.replace("key", str(number % 2).encode(), etag=seen[-1]))
    assert len(set(seen)) == len(seen)


def test_modification_time_grows_on_coarse_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.utime

    def whole_seconds(fd: int, *, ns: tuple[int, int]) -> None:
        real(fd, ns=(ns[0] // 10**9 * 10**9, ns[1] // 10**9 * 10**9))

    monkeypatch.setattr(os, "utime", whole_seconds)
    later_ns = time.time_ns() + 3_600_000_000_000
    status = write_durable_later(str(tmp_path / "file"), b"x", 0o600, than_ns=later_ns)
    assert later_ns < status.st_mtime_ns < later_ns + 20_000_000_000
    assert (tmp_path / "file").stat().st_mtime_ns == status.st_mtime_ns


def hold_lock(root: Path, key: str) -> int:
    path = root / ".locks" / f"{zlib.crc32(key.encode()) % LOCK_STRIPES:02x}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


async def test_lock_held_elsewhere_ends_in_outcome_unknown(store: LocalStore, root: Path) -> None:
    await store.create("key", b"1")
    etag = (await store.head("key")).etag
    fd = hold_lock(root, "key")
    with pytest.raises(OutcomeUnknown, match="lock of key"):
        await store.replace("key", b"2", etag=etag)
    with pytest.raises(OutcomeUnknown, match="lock of key"):
        await store.delete(["key"])
    os.close(fd)
    await store.replace("key", b"2", etag=etag)
    await store.delete(["key"])


async def test_held_lock_keeps_no_thread(root: Path) -> None:
    store = LocalStore(root, clock=SystemClock(), threads=1, lock_timeout_seconds=60)
    await store.create("key", b"1")
    fd = hold_lock(root, "key")
    replacing = asyncio.create_task(store.replace("key", b"2", etag=(await store.head("key")).etag))
    for number in range(20):
        await store.create(f"other{number}", b"x")
    assert not replacing.done()
    os.close(fd)
    await asyncio.wait_for(replacing, 10)
    await store.close()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, OutcomeUnknown),
        (errno.EIO, OutcomeUnknown),
        (errno.EDQUOT, OutcomeUnknown),
        (errno.ESTALE, OutcomeUnknown),
        (errno.EROFS, StoreRefused),
        (errno.EACCES, StoreRefused),
    ],
)
@pytest.mark.parametrize("call", ["open", "write", "fsync", "link"])
async def test_system_errors_are_explained(
    store: LocalStore,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    kind: type[StoreError],
) -> None:
    def failing(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(kind, match=f"folder/key.*{os.strerror(number)}"):
            await store.create("folder/key", b"x")
    assert await keys_of(store) == []
    assert temp_files(root) == []
    await store.create("folder/key", b"x")


async def test_short_writes_are_completed(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:7]))
    data = bytes(range(100))
    await store.create("key", data)
    monkeypatch.undo()
    assert (await store.get("key")).data == data


async def test_store_is_not_made_again_behind_a_lost_mount(store: LocalStore, root: Path) -> None:
    await store.create("key", b"x")
    root.rename(root.with_name("elsewhere"))
    with pytest.raises(OutcomeUnknown, match="not mounted"):
        await store.create("key2", b"x")
    assert not root.exists()


async def test_key_below_an_object_is_refused(store: LocalStore) -> None:
    await store.create("a/b", b"x")
    with pytest.raises(StoreRefused, match="is a file, not a folder"):
        await store.create("a/b/c", b"x")
    with pytest.raises(StoreRefused, match="is a folder"):
        await store.create("a", b"x")


async def test_too_long_a_name_is_refused(store: LocalStore) -> None:
    with pytest.raises(StoreRefused, match="too long"):
        await store.create("a" * 300, b"x")


def test_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreRefused, match="file"):
        LocalStore(tmp_path / "file", clock=SystemClock())


async def test_foreign_files_are_left_out_of_lists(store: LocalStore, root: Path) -> None:
    await store.create("folder/key", b"x")
    (root / "folder" / ".hidden").write_bytes(b"")
    (root / ".folder").mkdir()
    (root / "folder" / "empty").mkdir()
    os.mkfifo(root / "folder" / "fifo")
    Path(os.fsdecode(os.fsencode(root) + b"/folder/\xff")).write_bytes(b"")
    assert await keys_of(store) == ["folder/key"]
    assert list(await store.list_folders("")) == ["folder"]
    assert list(await store.list_folders("folder/")) == []


async def test_list_asks_only_for_what_it_gives(store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "folder"
    folder.mkdir()
    names = [f"{number:020d}.parquet" for number in range(5000)]
    for name in names:
        os.close(os.open(folder / name, os.O_CREAT | os.O_WRONLY))
    real, asked = os.stat, []

    def counted(path: str) -> os.stat_result:
        asked.append(path)
        return real(path)

    monkeypatch.setattr(os, "stat", counted)
    found = [info.key async for info in store.list("folder/", after=f"folder/{names[4989]}")]
    assert found == [f"folder/{name}" for name in names[4990:]]
    assert len(asked) == 10
    asked.clear()
    assert len([info async for info in store.list("folder/", limit=7)]) == 7
    assert len(asked) == 7
    asked.clear()
    listing = store.list("folder/")
    assert (await anext(listing)).key == f"folder/{names[0]}"
    # By the page, not all at once.
    assert len(asked) == 1000


async def test_list_passes_over_what_is_deleted_meanwhile(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("filer.stores.local.local_store.LIST_PAGE", 1)
    for key in ("a", "b", "c/d", "e"):
        await store.create(key, b"x")
    listing = store.list("")
    assert (await anext(listing)).key == "a"
    await store.delete(["b", "c/d"])
    assert [info.key async for info in listing] == ["e"]


async def test_stream_is_held_in_bounded_memory(store: LocalStore) -> None:
    chunk = b"x" * 65_536

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(512):
            yield chunk

    tracemalloc.start()
    try:
        await store.create_from_stream("key", chunks(), size_bytes=512 * len(chunk), sha256=None)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (await store.head("key")).size_bytes == 32 * 1024 * 1024
    assert peak_bytes < 3 * 1024 * 1024


async def test_cancelled_stream_leaves_nothing(store: LocalStore, root: Path) -> None:
    waiting = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        waiting.set()
        await asyncio.Event().wait()

    writing = asyncio.create_task(store.create_from_stream("key", stalling(), size_bytes=5_000_000, sha256=None))
    await asyncio.wait_for(waiting.wait(), 10)
    assert len(temp_files(root)) == 1
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert temp_files(root) == []
    assert await keys_of(store) == []


async def test_uri_is_readable_by_other_programs(store: LocalStore, root: Path) -> None:
    assert store.uri("topics/t/segments/segment=3/x.parquet") == f"file://{root}/topics/t/segments/segment=3/x.parquet"
    assert store.uri("a b/50%/ü") == f"file://{root}/a%20b/50%25/%C3%BC"


async def test_hung_write_does_not_hold_up_others(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.create("folder/first", b"x")
    go_on = threading.Event()
    real = os.link

    def hanging(source: str, target: str) -> None:
        if target.endswith("hung"):
            assert go_on.wait(30)
        real(source, target)

    monkeypatch.setattr(os, "link", hanging)
    hung = asyncio.create_task(store.create("folder/hung", b"x"))
    await asyncio.wait_for(store.create("folder/second", b"x"), 10)
    hung.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung
    await asyncio.wait_for(store.create("folder/third", b"x"), 10)
    assert await keys_of(store) == ["folder/first", "folder/second", "folder/third"]
    go_on.set()


async def test_a_directory_that_hangs_gathers_no_calls_without_end(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers give up, and a thread that hangs in the operating system cannot be ended."""
    monkeypatch.setattr("filer.stores.local.local_store.MOST_UNDER_WAY", 40)
    await store.create("k", b"1")
    mended = threading.Event()
    stat = os.stat

    def hang(*arguments: Any, **named: Any) -> os.stat_result:
        mended.wait(20)
        return stat(*arguments, **named)

    monkeypatch.setattr("filer.stores.local.object_folder.os.stat", hang)
    try:
        readers = [asyncio.create_task(store.head("k")) for _ in range(40)]
        await asyncio.sleep(0)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        with pytest.raises(OutcomeUnknown, match="40 calls wait") as raised:
            await store.head("k")
        assert raised.value.cause == "busy"
    finally:
        mended.set()
    async with asyncio.timeout(20):
        while store._under_way:
            await asyncio.sleep(0.005)
    assert (await store.head("k")).size_bytes == 1
