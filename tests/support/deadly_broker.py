"""`mq` whose process kills itself at a named step of the write path: `python -m tests.support.deadly_broker serve ...`.

DEADLY_STEP names the step, DEADLY_NTH (1 at first) which passing of it is the last. The store and the broker are the
real ones, wrapped.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from filer.forwarding_store import ForwardingStore
from filer.open_store import open_store
from filer.segment_file import read_footer
from filer.store import Data, MakeData, Store
from filer.topic_state import TopicState
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


class Fuse:
    """Kills this process at the n-th passing of one step."""

    def __init__(self, step: str, nth: int) -> None:
        assert step in STEPS, f"{step!r} is none of {STEPS}"
        self._step, self._left = step, nth

    def at(self, step: str) -> None:
        if step != self._step:
            return
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


class DeadlyStore(ForwardingStore):
    """Passes the steps that show in a store's calls."""

    def __init__(self, inner: Store, fuse: Fuse) -> None:
        super().__init__(inner)
        self._fuse = fuse

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        if "/segments/" not in key:
            return await self.inner.create(key, data, metadata=metadata)
        made = bytes(data() if callable(data) else data)
        put = "seal put" if read_footer(made).sealed else "put"
        self._fuse.at(f"before {put}")
        await self.inner.create(key, made, metadata=metadata)
        self._fuse.at(f"{put} returned")

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        if not key.endswith("/topic.json"):
            return await self.inner.replace(key, data, etag=etag)
        before = TopicState.from_json((await self.inner.get(key)).data).transition
        after = TopicState.from_json(bytes(data)).transition
        change = (before is not None, after is not None)
        self._fuse.at({(False, True): "before begin", (True, False): "before finish"}.get(change, "other"))
        new = await self.inner.replace(key, data, etag=etag)
        self._fuse.at({(False, True): "begun", (True, False): "finished"}.get(change, "other"))
        return new


def deadly_link(fuse: Fuse) -> Callable[[str, str], None]:
    """`os.link`, passing the steps within a put of a segment file into a directory."""
    link = os.link

    def linking(temp: str, final: str) -> None:
        is_segment_file = "/segments/" in final
        fuse.at("temp file written" if is_segment_file else "other")
        link(temp, final)
        fuse.at("linked" if is_segment_file else "other")

    return linking


def run() -> None:
    fuse = Fuse(os.environ["DEADLY_STEP"], int(os.environ.get("DEADLY_NTH", "1")))

    def open_deadly(url: str, **arguments: Any) -> Store:
        return DeadlyStore(open_store(url, **arguments), fuse)

    with mock.patch("os.link", deadly_link(fuse)), mock.patch("mq.server.open_store", open_deadly):
        main()


if __name__ == "__main__":
    run()
