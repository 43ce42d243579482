import gzip
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mq.base.errors import BodyTooLarge, FrontStoreFull, Malformed, UnsupportedMedia
from mq.base.front_store import FrontStore
from mq.bodies.intake import ClientGone, Intake

MIB = 1024 * 1024


def sent(*parts: bytes, gone: bool = False) -> Callable[[], Awaitable[dict[str, Any]]]:
    """An ASGI `receive` of these parts; where `gone`, the client leaves after them."""
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": part, "more_body": gone or n < len(parts) - 1} for n, part in enumerate(parts)
    ]
    if gone:
        messages.append({"type": "http.disconnect"})
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left)

    return receive


def intake(store: FrontStore, limit_bytes: int = MIB) -> Intake:
    return Intake(store, limit_bytes, "/v1/topics/t/uploads", wait=False)


@pytest.mark.parametrize("declared", [None, 6, 0])
async def test_bodies_come_in_parts(declared: int | None) -> None:
    store = FrontStore(MIB)
    with intake(store) as held:
        assert await held.read(sent(b"ab", b"", b"cdef"), declared) == b"abcdef"
        assert store.pending_bytes == held.held_bytes == 6
    assert store.pending_bytes == 0


async def test_limits_hold_declared_or_not() -> None:
    store = FrontStore(MIB)
    for parts, declared in [((b"x" * 11,), None), ((b"x" * 6, b"x" * 5), None), ((), 11), ((b"x" * 11,), 5)]:
        with pytest.raises(BodyTooLarge, match="10 bytes") as caught, intake(store, 10) as held:
            await held.read(sent(*parts), declared)
        assert (caught.value.limit_bytes, caught.value.upload) == (10, "/v1/topics/t/uploads")
        assert store.pending_bytes == 0


async def test_what_can_never_fit_is_too_large() -> None:
    with pytest.raises(BodyTooLarge), intake(FrontStore(10), MIB) as held:
        await held.read(sent(b"x" * 11), 11)


async def test_no_room() -> None:
    store = FrontStore(10)
    store.try_reserve(5)
    for declared in (None, 6):
        with pytest.raises(FrontStoreFull), intake(store) as held:
            await held.read(sent(b"abc", b"def"), declared)
        assert store.pending_bytes == 5


async def test_clients_that_leave() -> None:
    store = FrontStore(MIB)
    for receive in (sent(b"abc", gone=True), sent(gone=True)):
        with pytest.raises(ClientGone), intake(store) as held:
            await held.read(receive, 100)
        assert store.pending_bytes == 0


@pytest.mark.parametrize("size_bytes", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 7])
async def test_gzip(size_bytes: int) -> None:
    data = bytes(size_bytes)
    with intake(FrontStore(8 * MIB), 8 * MIB) as held:
        assert await held.inflate(gzip.compress(data), "gzip") == data
        assert held.held_bytes == size_bytes
        assert await held.inflate(b"as it is", "identity") == b"as it is"


async def test_gzip_bombs() -> None:
    store = FrontStore(8 * MIB)
    with pytest.raises(BodyTooLarge), intake(store, 2 * MIB) as held:
        await held.inflate(gzip.compress(bytes(100 * MIB)), "gzip")
    assert store.pending_bytes == 0


async def test_what_is_no_gzip() -> None:
    whole = gzip.compress(b"data")
    with intake(FrontStore(MIB)) as held:
        for bad in (b"", b"data", whole[:-1], whole + b"x", whole + whole, zlib.compress(b"data")):
            with pytest.raises(Malformed, match="not valid gzip"):
                await held.inflate(bad, "gzip")
        for encoding in ("br", "gzip, gzip", "deflate"):
            with pytest.raises(UnsupportedMedia, match="send gzip or none"):
                await held.inflate(whole, encoding)
