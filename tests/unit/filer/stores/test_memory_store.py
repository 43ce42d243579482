"""What is particular to the store in memory; the contract of all stores is in tests/integration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.clock import ManualClock
from filer.errors import ObjectExists
from filer.stores.memory_store import MemoryStore

PART = st.text("ab-./0é\U0001f600", min_size=1, max_size=3).filter(lambda part: "/" not in part and part[0] != ".")
KEYS = st.lists(st.lists(PART, min_size=1, max_size=3).map("/".join), unique=True, max_size=12)


async def test_times_are_the_clocks() -> None:
    clock = ManualClock(start_us=1_000_000)
    store = MemoryStore(clock=clock)
    await store.create("a", b"")
    await clock.advance(5)
    await store.create("b", b"")
    assert [info.modified_us async for info in store.list("")] == [1_000_000, 6_000_000]


async def test_each_state_has_its_own_etag() -> None:
    store = MemoryStore()
    await store.create("key", b"same")
    etags = [(await store.head("key")).etag]
    etags.append(await store.replace("key", b"same", etag=etags[-1]))
    await store.delete(["key"])
    await store.create("key", b"same")
    etags.append((await store.head("key")).etag)
    assert len(set(etags)) == 3


async def test_callers_bytes_are_copied() -> None:
    store = MemoryStore()
    data = bytearray(b"one")
    await store.create("key", data)
    data[:] = b"two"
    assert (await store.get("key")).data == b"one"


async def test_list_bears_changes_on_the_way() -> None:
    store = MemoryStore()
    for key in "abcd":
        await store.create(key, b"")
    seen = []
    async for info in store.list(""):
        seen.append(info.key)
        if info.key == "b":
            await store.delete(["a", "b", "c"])
            await store.create("a2", b"")
            await store.create("c2", b"")
    assert seen == ["a", "b", "c2", "d"]


@given(KEYS, st.text("ab-./0", max_size=3), st.none() | st.text("ab-./0", max_size=3))
async def test_list_is_sorted_and_filtered(keys: list[str], prefix: str, after: str | None) -> None:
    store = MemoryStore()
    for key in keys:
        await store.create(key, b"")
        with pytest.raises(ObjectExists):
            await store.create(key, b"")
    if prefix.startswith(("/", ".")) or "//" in prefix or "/." in prefix:
        return
    expected = sorted((key for key in keys if key.startswith(prefix)), key=str.encode)
    found = [info.key async for info in store.list(prefix, after=after)]
    assert found == [key for key in expected if after is None or key.encode() > after.encode()]
