"""Checks the files of a bulk load in another process, whose memory and time are limited."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import orjson

from filer.bulk_load.load_check import MOST_ROW_GROUP_BYTES, MOST_ROW_GROUPS, FileClaim
from filer.bulk_load.load_segment import LoadSegment
from filer.bulk_load.row_group_lots import MOST_PAGES, MOST_RANGES, Ranges
from filer.errors import LoadRefused, ObjectNotFound, OutcomeUnknown
from filer.stores.store import Store
from mq.bulk_load.check_lanes import Lane

MIB = 1024 * 1024
LIMIT_BYTES = 512 * MIB
"""Memory that a process may take after its start: for a row group as stored, inflated and decoded."""
SHORT_AT_ONCE = LONG_AT_ONCE = 1
READS_AT_ONCE = 8
SHORT_BYTES, SHORT_SECONDS, SHORT_WAIT_SECONDS = 64 * MIB, 2, 5.0
"""A load of so few bytes, as stored, first gets a short try: so much processor time, and no longer in all."""
LONG_SECONDS, SECONDS_PER_MIB = 20, 4
"""Processor time that a load may take: so much, and more for each MiB as stored. Most take a tenth of a second."""
CPU_SECONDS = 60.0
"""Processor time of a process between two requests or answers. The largest row group takes about a second."""
SILENT_SECONDS = 600.0
"""A process that is silent for so long is ended.

The file is not refused for that: the process got no processor time.
"""
_MOST_ANSWER_BYTES = 64 * 1024
_MOST_READS = MOST_ROW_GROUPS * (MOST_PAGES + 4)
# One arena, and freed memory is kept for the next row groups: allocating it again takes a tenth of the time.
_MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "MALLOC_TRIM_THRESHOLD_": str(256 * MIB),
    "MALLOC_TOP_PAD_": str(16 * MIB),
}
_ENVIRONMENT = ("LD_LIBRARY_PATH", "PATH", "PYTHONPATH")


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file as it was found on the store, with its claim."""

    key: str
    etag: str
    claim: FileClaim
    segment: LoadSegment


class _OutOfTime(Exception):
    """The process has used all of its processor time."""


class LoadChecker:
    """Checks the files of each load one after the other, in a process per load; few loads at once.

    A file that takes long waits for others of its kind, and never keeps short loads waiting: a file of some kilobytes
    may take as long as one of gigabytes. Principals take turns.

    The process asks for ranges of bytes, at most those of one row group at a time: that limits this broker's memory per
    load.
    """

    def __init__(
        self,
        store: Store,
        *,
        limit_bytes: int = LIMIT_BYTES,
        cpu_seconds: float = CPU_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._store, self._limit_bytes = store, limit_bytes
        self._cpu_seconds, self._silent_seconds = cpu_seconds, silent_seconds
        self._short, self._long = Lane(SHORT_AT_ONCE), Lane(LONG_AT_ONCE)
        self._reading = asyncio.Semaphore(READS_AT_ONCE)

    async def check(self, files: Sequence[PinnedFile], asker: str = "") -> None:
        """Raises `LoadRefused`, which names the first file that differs from its claim, and `StoreError`.

        Raises `OutcomeUnknown` if this machine was too busy to finish the check. `asker` is the principal.
        """
        size_bytes = sum(file.claim.size_bytes for file in files)
        left = deque(files)
        if size_bytes <= SHORT_BYTES:
            async with self._short.turn(asker), self._process(SHORT_SECONDS) as process:
                with contextlib.suppress(_OutOfTime, TimeoutError):
                    async with asyncio.timeout(SHORT_WAIT_SECONDS):
                        while left:
                            await self._check_next(process, left)
        left_seconds: float = LONG_SECONDS + SECONDS_PER_MIB * size_bytes // MIB
        while left:
            left_seconds -= await self._check_some(left, asker, left_seconds)

    async def _check_some(self, left: "deque[PinnedFile]", asker: str, left_seconds: float) -> float:
        """Check the next file, and others behind it while no other load waits; returns the processor time it took."""
        used_seconds, file = 0.0, left[0]
        async with self._long.turn(asker), self._process(max(1, round(left_seconds))) as process:
            while left and (file is left[0] or not self._long.is_awaited):
                try:
                    used_seconds = await self._check_next(process, left)
                except _OutOfTime as error:
                    raise LoadRefused(
                        f"{left[0].key}: the load takes more processor time than it may for its size, which is "
                        f"{LONG_SECONDS} s and {SECONDS_PER_MIB} s for each MiB"
                    ) from error
        return used_seconds

    async def _check_next(self, process: asyncio.subprocess.Process, left: "deque[PinnedFile]") -> float:
        """Check the first of the remaining files, and remove it from them.

        Returns the processor time that the process has taken since its start.
        """
        try:
            used_seconds = await self._check(process, left[0])
        except LoadRefused as error:
            raise LoadRefused(f"{left[0].key}: {error}") from error
        left.popleft()
        return used_seconds

    @contextlib.asynccontextmanager
    async def _process(self, total_seconds: int) -> AsyncIterator[asyncio.subprocess.Process]:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        # Arrow's own allocators reserve far more address space than they use, and the limit counts address space.
        environment |= {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", **_MALLOC}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mq.bulk_load.load_check_process",
            str(self._limit_bytes),
            str(self._cpu_seconds),
            str(total_seconds),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _kill(process)
            await process.wait()

    async def _check(self, process: asyncio.subprocess.Process, file: PinnedFile) -> float:
        try:
            job = {"claim": asdict(file.claim), "segment": asdict(file.segment)}
            answer = await self._ask(process, orjson.dumps(job, default=attrgetter("id")))
            for _ in range(_MOST_READS):
                if "need" not in answer:
                    break
                answer = await self._ask(process, *await self._fetch(file, answer["need"]))
            else:
                raise LoadRefused("it takes too many reads to look through")
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            raise LoadRefused(await self._why_it_ended(process)) from error
        if "ok" not in answer:
            raise LoadRefused(answer["refused"])
        return float(answer["cpu_seconds"])

    async def _why_it_ended(self, process: asyncio.subprocess.Process) -> str:
        _kill(process)  # if it has ended by itself, this changes nothing
        ended_by = -await process.wait()
        if ended_by == signal.SIGXCPU:
            raise _OutOfTime
        if ended_by == signal.SIGPROF:
            return f"it takes more than {self._cpu_seconds:g} s of processor time to decode a part of it"
        # If Arrow cannot report a failed allocation, it ends the process.
        most = f"{self._limit_bytes // MIB} MiB"
        return f"it ends the process that opens it: it is damaged, or takes {most} of memory"

    async def _ask(self, process: asyncio.subprocess.Process, *frames: bytes) -> dict[str, Any]:
        """Send the frames; returns the process's answer."""
        try:
            async with asyncio.timeout(self._silent_seconds):
                await _send(process, *frames)
                return await _answer(process)
        except TimeoutError as error:
            raise OutcomeUnknown(
                f"the process that checks the load was silent for {self._silent_seconds:g} s: this machine has too "
                "much to do; commit again"
            ) from error

    async def _fetch(self, file: PinnedFile, ranges: Ranges) -> list[bytes]:
        if len(ranges) > MOST_RANGES or sum(stop - start for start, stop in ranges) > MOST_ROW_GROUP_BYTES:
            raise LoadRefused("it takes too many bytes at a time to look through")
        return await asyncio.gather(*(self._fetch_range(file, start, stop) for start, stop in ranges))

    async def _fetch_range(self, file: PinnedFile, start: int, stop: int) -> bytes:
        if not 0 <= start <= stop <= file.claim.size_bytes:
            raise LoadRefused(f"it refers to the bytes [{start}, {stop}), and has {file.claim.size_bytes}")
        if start == stop:
            return b""
        try:
            async with self._reading:
                fetched = await self._store.get(file.key, start=start, stop=stop)
        except ObjectNotFound as error:
            raise LoadRefused("it is gone") from error
        if fetched.info.etag != file.etag:
            raise LoadRefused("it has changed while it was checked")
        return fetched.data


async def _send(process: asyncio.subprocess.Process, *frames: bytes) -> None:
    assert process.stdin is not None
    process.stdin.writelines(part for data in frames for part in (len(data).to_bytes(4, "big"), data))
    await process.stdin.drain()


async def _answer(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    length = int.from_bytes(await process.stdout.readexactly(4), "big")
    if length > _MOST_ANSWER_BYTES:
        raise LoadRefused("it cannot be read")
    answer: dict[str, Any] = orjson.loads(await process.stdout.readexactly(length))
    return answer


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        kill_group(process.pid)


def kill_group(pid: int) -> None:
    """Kill the process group of this number; nothing happens if it has ended.

    `Process.kill` would first ask for the exit code of a process that has ended by itself. Then the event loop, which
    waits for the same code, would find none and report 255.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
