"""Checks that a store can fence: of two conditional writes only one succeeds (docs/design.md §4)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from filer import keys
from filer.clock import Clock
from filer.errors import EtagMismatch, ObjectExists, OutcomeUnknown, StoreCannotFence, StoreError
from filer.stores.store import Store

RACES = 3
TRIES = 5
PAUSE_SECONDS = 0.2


async def check_fencing(store: Store, clock: Clock) -> None:
    """Make sure that the store honours conditional writes, with one or two dozen requests on new objects.

    Raises `StoreCannotFence` if it does not, and `OutcomeUnknown` or `StoreRefused` if the check could not be made.
    """
    probes = [keys.fence_check(clock.ulid()) for _ in range(RACES)]
    try:
        for probe in probes:
            await _check_create(store, clock, probe)
            await _check_replace(store, clock, probe)
    finally:
        # A probe that stays is harmless. A failure to remove it must not hide the result of the check.
        with contextlib.suppress(StoreError):
            await store.delete(probes)


async def _check_create(store: Store, clock: Clock, probe: str) -> None:
    bodies = [f"{name} {clock.ulid()}".encode() for name in ("first", "second")]
    won = await asyncio.gather(*(_create(store, clock, probe, body) for body in bodies))
    if all(won):
        raise _cannot(store, probe, "two writers created it at the same time, and both were told that they did")
    if not any(won):
        raise _cannot(store, probe, "two writers created it at the same time, and neither was told that it did")
    if await _create(store, clock, probe, b"late"):
        raise _cannot(store, probe, "it existed, and could be created again")
    found = (await store.get(probe)).data
    if found != bodies[won.index(True)]:
        raise _cannot(store, probe, "it does not hold what the writer that created it wrote")


async def _check_replace(store: Store, clock: Clock, probe: str) -> None:
    before = (await store.head(probe)).etag
    bodies = [f"{name} {clock.ulid()}".encode() for name in ("third", "fourth")]
    won = await asyncio.gather(*(_replace(store, clock, probe, body, before) for body in bodies))
    if all(won):
        raise _cannot(store, probe, "two writers replaced the same state of it, and both were told that they did")
    if not any(won):
        raise _cannot(store, probe, "it could not be replaced with its own ETag")
    if await _replace(store, clock, probe, b"stale", before):
        raise _cannot(store, probe, "it could be replaced with the ETag of an earlier state")
    found = (await store.get(probe)).data
    if found != bodies[won.index(True)]:
        raise _cannot(store, probe, "it does not hold what the writer that replaced it wrote")


async def _create(store: Store, clock: Clock, probe: str, body: bytes) -> bool:
    """Whether this body was created."""
    try:
        await _until_known(clock, lambda: store.create(probe, body))
        return True
    except ObjectExists:
        # Perhaps an earlier try of ours created it and its answer was lost.
        return (await store.get(probe)).data == body


async def _replace(store: Store, clock: Clock, probe: str, body: bytes, etag: str) -> bool:
    """Whether this body replaced the object of that ETag."""
    try:
        await _until_known(clock, lambda: store.replace(probe, body, etag=etag))
        return True
    except EtagMismatch:
        return (await store.get(probe)).data == body


async def _until_known(clock: Clock, call: Callable[[], Awaitable[object]]) -> None:
    """Repeat the call while its outcome is unknown: some stores answer 409 to one of two simultaneous writers."""
    for _ in range(TRIES - 1):
        try:
            await call()
            return
        except OutcomeUnknown:
            await clock.sleep(PAUSE_SECONDS)
    await call()


def _cannot(store: Store, probe: str, what_happened: str) -> StoreCannotFence:
    return StoreCannotFence(
        f"the store does not honour conditional writes: of {store.uri(probe)}, {what_happened}. Two brokers could "
        "overwrite each other's messages there, so BraidMQ does not run on it. Use a store that honours "
        "If-None-Match and If-Match on a put, as AWS S3 does, or a local directory."
    )
