"""What other processes do to a directory that is tidied up: `python -m tests.support.store.tidy_worker ROOT TASK ...`.

count KEY TIMES       raise the number in KEY by compare-and-swap that many times; open and close the directory often
killed POINT NTH      open it, write, replace, delete and close it; SIGKILL at the NTH system call named POINT
"""

import asyncio
import sys
from pathlib import Path

from filer.clock import SystemClock
from filer.errors import EtagMismatch
from filer.stores.local.local_store import LocalStore
from tests.support.store.store_worker import executor

WHILE_OPEN = 5


def opened(root: Path) -> LocalStore:
    """The directory as a store that leaves nothing of its own."""
    return LocalStore(root, clock=SystemClock(), lock_timeout_seconds=60, tidies_up=True)


async def count(root: Path, key: str, times: str) -> None:
    left = int(times)
    while left:
        store = opened(root)
        for _ in range(WHILE_OPEN):
            fetched = await store.get(key)
            try:
                await store.replace(key, str(int(fetched.data) + 1).encode(), etag=fetched.info.etag)
                left -= 1
            except EtagMismatch:
                continue
            if not left:
                break
        await store.close()


async def killed(root: Path, point: str, nth: str) -> None:
    executor(point, int(nth))
    store = opened(root)
    await store.create("a", b"1")
    await store.replace("a", b"2", etag=(await store.head("a")).etag)
    await store.delete(["a"])
    await store.close()
    print("survived")


if __name__ == "__main__":
    task = {"count": count, "killed": killed}[sys.argv[2]]
    asyncio.run(task(Path(sys.argv[1]), *sys.argv[3:]))
