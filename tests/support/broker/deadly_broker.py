"""`mq` whose process kills itself at a named step of the write path.

Run it by `python -m tests.support.broker.deadly_broker serve ...`.

DEADLY_STEP names the step, DEADLY_NTH (1 at first) which passing of it is the last. Or DEADLY_FILE names a file that a
test may write at any time, see `tests/support/cluster/deadly_cluster.py`. The store and the broker are the real ones,
wrapped.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

from filer import keys
from filer.clock import Clock
from filer.format.segment_file import read_footer
from filer.segment.segment_log import put_until_known
from filer.segment.writer.segment_writer import SegmentWriter
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.open_store import open_store
from filer.stores.store import Data, MakeData, Store, StreamingStore
from filer.stores.store_address import StoreAddress
from filer.topic.topic_state import TopicState
from leader.membership.zookeeper_coordinator import ZooKeeperCoordinator
from mq.cli.main import main

STEPS = (
    "before put",
    "temp file written",
    "linked",
    "put returned",
    "before seal put",
    "seal put returned",
    "before begin",
    "begun",
    "before finish",
    "finished",
)
# A load; its seals and its transition pass the steps above as well.
LOAD_STEPS = ("before reservation", "reserved", "before load file", "load file stored")
# An owner about to store what publishers have been told of, and only its followers hold.
LATE_STEP = "before put of what was acknowledged"
# A follower that stores what it holds of a segment whose owner cannot.
TAKE_OVER_STEPS = ("before take-over put", "take-over put returned")


class Fuse(Protocol):
    """Kills this process when it passes a given step."""

    def at(self, step: str, topic: str = "") -> None:
        """A step has been reached, in the work on that topic."""
        ...

    def replaces(self, record: bytes) -> None:
        """This topic.json is about to be replaced."""
        ...


class CountingFuse:
    """Kills at the n-th passing of one step."""

    def __init__(self, step: str, nth: int) -> None:
        assert step in (*STEPS, *LOAD_STEPS), f"{step!r} is none of {(*STEPS, *LOAD_STEPS)}"
        self._step, self._left = step, nth

    def replaces(self, record: bytes) -> None:
        return

    def at(self, step: str, topic: str = "") -> None:
        if step != self._step:
            return
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


class FileFuse:
    """Kills at the step that a file named after this broker says, as `topic:step`, or `:step` for any topic.

    Of all brokers whose files lie in one folder the first that gets there dies, and says so in `blown`. Beside that
    folder, in `versions`, all of them keep every topic.json that they replace: all that ever stood but the newest.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._blown, self._versions = path, path.parent / "blown", path.parent.parent / "versions"
        self._coordinators: list[ZooKeeperCoordinator] = []

    def coordinator(self, *arguments: Any, **settings: Any) -> ZooKeeperCoordinator:
        """The coordinator that says whether this broker leads."""
        self._coordinators.append(ZooKeeperCoordinator(*arguments, **settings))
        return self._coordinators[-1]

    def replaces(self, record: bytes) -> None:
        state = TopicState.from_json(record)
        (self._versions / f"{state.topic}-{state.version:06d}.json").write_bytes(record)

    def at(self, step: str, topic: str = "") -> None:
        try:
            chosen = self._path.read_text()
            if chosen not in (f":{step}", f"{topic}:{step}"):
                return
            blown = os.open(self._blown, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except (FileNotFoundError, FileExistsError):
            return
        self._path.unlink()
        leader = self._coordinators[0].leader() or ""
        leads = leader.rpartition(".")[0] == self._path.name
        os.write(blown, f"{self._path.name} {'leads' if leads else 'follows'}".encode())
        os.kill(os.getpid(), signal.SIGKILL)


class DeadlyStore(ForwardingStore):
    """Passes the steps that are visible as calls of the store."""

    def __init__(self, inner: Store, fuse: Fuse) -> None:
        super().__init__(inner)
        self._fuse = fuse

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        if "/segments/" not in key:
            return await self.inner.create(key, data, metadata=metadata)
        made = bytes(data() if callable(data) else data)
        put = "seal put" if read_footer(made).sealed else "put"
        self._fuse.at(f"before {put}", _topic(key))
        await self.inner.create(key, made, metadata=metadata)
        self._fuse.at(f"{put} returned", _topic(key))

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        if not key.endswith("/topic.json"):
            return await self.inner.replace(key, data, etag=etag)
        record = (await self.inner.get(key)).data
        first, then = _change(TopicState.from_json(record), TopicState.from_json(bytes(data)))
        self._fuse.at(first, _topic(key))
        # Where it is what the new one replaces it is kept before it goes; else nothing is replaced.
        self._fuse.replaces(record)
        new = await self.inner.replace(key, data, etag=etag)
        self._fuse.at(then, _topic(key))
        return new


class DeadlyDirectory(DeadlyStore):
    """A directory, which takes files of loads chunk by chunk."""

    async def create_from_stream(
        self, key: str, chunks: AsyncIterator[bytes], *, size_bytes: int, sha256: str | None
    ) -> str:
        assert isinstance(self.inner, StreamingStore)
        self._fuse.at("before load file", _topic(key))
        digest = await self.inner.create_from_stream(key, chunks, size_bytes=size_bytes, sha256=sha256)
        self._fuse.at("load file stored", _topic(key))
        return digest


def _change(before: TopicState, after: TopicState) -> tuple[str, str]:
    """The steps before and after this change of topic.json."""
    if len(after.loads) > len(before.loads):
        return "before reservation", "reserved"
    under_way = (before.transition is not None, after.transition is not None)
    steps = {(False, True): ("before begin", "begun"), (True, False): ("before finish", "finished")}
    return steps.get(under_way, ("other", "other"))


def _topic(key: str) -> str:
    return key.removeprefix(keys.TOPICS).partition("/")[0]


def deadly_link(fuse: Fuse) -> Callable[[str, str], None]:
    """`os.link`, passing the steps of putting a segment file into a directory."""
    link = os.link

    def linking(temp: str, final: str) -> None:
        is_segment_file = "/segments/" in final
        fuse.at("temp file written" if is_segment_file else "other")
        link(temp, final)
        fuse.at("linked" if is_segment_file else "other")

    return linking


def deadly_put(fuse: Fuse) -> Callable[..., Awaitable[bool]]:
    """The put of a broker that takes a segment over, passing its steps."""

    async def putting(store: Store, clock: Any, key: str, *arguments: Any) -> bool:
        fuse.at("before take-over put", _topic(key))
        ours = await put_until_known(store, clock, key, *arguments)
        fuse.at("take-over put returned", _topic(key))
        return ours

    return putting


def deadly_storing(fuse: Fuse) -> Callable[..., Awaitable[None]]:
    """Stores a batch of a writer, passing the step that only the batch shows."""
    store_batch = SegmentWriter._store_batch

    async def storing(writer: SegmentWriter, batch: Sequence[Any], seal: bool) -> None:
        if any(pending.answered_early for pending in batch):
            fuse.at(LATE_STEP, writer.ref.topic)
        await store_batch(writer, batch, seal)

    return storing


def run() -> None:
    if path := os.environ.get("DEADLY_FILE"):
        fuse = FileFuse(Path(path))
        with mock.patch("leader.membership.zookeeper_coordinator.ZooKeeperCoordinator", fuse.coordinator):
            run_with(fuse)
    else:
        run_with(CountingFuse(os.environ["DEADLY_STEP"], int(os.environ.get("DEADLY_NTH", "1"))))


def run_with(fuse: Fuse) -> None:
    def open_deadly(address: StoreAddress, clock: Clock) -> Store:
        store = open_store(address, clock)
        return DeadlyDirectory(store, fuse) if isinstance(store, StreamingStore) else DeadlyStore(store, fuse)

    with (
        mock.patch("os.link", deadly_link(fuse)),
        mock.patch("mq.process.server.open_store", open_deadly),
        mock.patch("filer.segment.take_over.put_until_known", deadly_put(fuse)),
        mock.patch.object(SegmentWriter, "_store_batch", deadly_storing(fuse)),
    ):
        main()


if __name__ == "__main__":
    run()
