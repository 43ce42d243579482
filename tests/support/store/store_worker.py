"""What other processes do to a local store during a test: `python -m tests.support.store.store_worker ROOT TASK ...`.

create KEY COUNT NAME        try to create KEY0, KEY1, ...; prints the numbers it won
count KEY TIMES              raise the number in KEY by compare-and-swap that many times
killed OPERATION POINT NTH   run the operation, SIGKILL at the NTH system call named POINT
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from filer.clock import SystemClock
from filer.errors import EtagMismatch, ObjectExists
from filer.stores.local.local_store import LocalStore

OLD = b"old " * 1000
NEW = b"new " * 1000


async def create(store: LocalStore, key: str, count: str, name: str) -> None:
    for number in range(int(count)):
        try:
            await store.create(f"{key}{number}", f"{name} {number}".encode())
            print(number)
        except ObjectExists:
            continue


async def count_up(store: LocalStore, key: str, times: str) -> None:
    for _ in range(int(times)):
        while True:
            fetched = await store.get(key)
            try:
                await store.replace(key, str(int(fetched.data) + 1).encode(), etag=fetched.info.etag)
                break
            except EtagMismatch:
                continue


async def killed(store: LocalStore, operation: str, point: str, nth: str) -> None:
    etag = (await store.head("folder/old.parquet")).etag
    executor(point, int(nth))
    if operation == "create":
        await store.create("folder/new.parquet", NEW)
    elif operation == "create_deep":
        await store.create("some/new/folders/new.parquet", NEW)
    elif operation == "replace":
        await store.replace("folder/old.parquet", NEW, etag=etag)
    elif operation == "stream":
        await store.create_from_stream("folder/new.parquet", halves(), size_bytes=len(NEW), sha256=None)
    print("survived")


async def halves() -> AsyncIterator[bytes]:
    yield NEW[:1000]
    yield NEW[1000:]


def executor(point: str, nth: int) -> None:
    """Die before (`-name`), after (`+name`) or, for a write, in the middle of (`/write`) the nth such call."""
    name = point[1:]
    real: Callable[..., Any] = getattr(os, name)
    calls = 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != nth:
            return real(*args, **kwargs)
        if point[0] == "/":
            real(args[0], args[1][: len(args[1]) // 2])
        elif point[0] == "+":
            real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")

    setattr(os, name, deadly)


TASKS: dict[str, Callable[..., Any]] = {"create": create, "count": count_up, "killed": killed}


async def main(root: str, task: str, *arguments: str) -> None:
    store = LocalStore(Path(root), clock=SystemClock())
    await TASKS[task](store, *arguments)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
