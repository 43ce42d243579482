"""The checks of `mq doctor`."""

import platform
import resource
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from braidmq import AsyncClient, BraidMQError
from filer import keys
from filer.clock import Clock
from filer.errors import BraidError
from filer.fence_check import check_fencing
from filer.store import Store
from mq.version import VERSION

_ROUNDS = 5
_LARGE_BYTES = 1024 * 1024
# S3 tells times in whole seconds.
_SKEW_SECONDS = 3.0
_OPEN_FILES = 1024
_PRESIGNED_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    result: Literal["ok", "warning", "failed"]
    detail: str


def machine_findings() -> list[Finding]:
    """Versions, and what this machine allows."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    enough = files >= _OPEN_FILES
    return [
        Finding("braidmq", "ok", VERSION),
        Finding("python", "ok", f"{platform.python_version()} ({sys.executable})"),
        Finding("pyarrow", "ok", pa.__version__),
        Finding(
            "open files",
            "ok" if enough else "warning",
            f"{files} per process" + ("" if enough else f": raise it to {_OPEN_FILES} or more (ulimit -n)"),
        ),
    ]


async def store_findings(store: Store, clock: Clock) -> list[Finding]:
    """Whether the store fences, how fast it answers, whether its clock agrees with this machine's."""
    try:
        fencing = await _check("conditional writes", lambda: _fencing(store, clock))
        if fencing.result == "failed":
            return [fencing]
        return [
            fencing,
            *[await _check(f"{size:,} bytes", lambda size=size: _round_trips(store, clock, size)) for size in (1024, _LARGE_BYTES)],
            await _check("clock", lambda: _clock_skew(store, clock)),
            await _check("signed addresses", lambda: _signed(store)),
        ]
    finally:
        await store.close()


async def broker_findings(client: AsyncClient, clock: Clock) -> list[Finding]:
    """Whether a broker answers, how fast, and who is in its cluster."""
    return [await _check("broker", lambda: _broker(client, clock)), await _check("topics", lambda: _topics(client))]
