import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer import keys
from filer.clock import ManualClock
from filer.errors import InvalidInput, Remedy
from filer.stores.memory_store import MemoryStore
from filer.uploads import EXPIRES_SECONDS, Claim, Uploads

SHA256 = hashlib.sha256(b"data").hexdigest()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def uploads(store: MemoryStore, clock: ManualClock) -> Uploads:
    return Uploads(store, clock, b"secret")


@given(st.integers(0, 10**13), st.none() | st.binary(min_size=32, max_size=32))
def test_ids_carry_what_was_declared(size_bytes: int, digest: bytes | None) -> None:
    clock = ManualClock()
    uploads = Uploads(MemoryStore(), clock, b"secret")
    issued = uploads.issue("t", size_bytes, digest.hex() if digest else None)
    assert uploads.parse("t", issued.id) == issued
    assert (issued.size_bytes, issued.sha256) == (size_bytes, digest.hex() if digest else None)
    assert issued.issued_us == clock.now_us() // 1000 * 1000
    for other in (Uploads(MemoryStore(), clock, b"another secret"), uploads):
        with pytest.raises(InvalidInput, match="was not issued for topic"):
            other.parse("t" if other is not uploads else "u", issued.id)


@given(st.data())
def test_changed_ids_are_refused(data: st.DataObject) -> None:
    uploads = Uploads(MemoryStore(), ManualClock(), b"secret")
    issued = uploads.issue("t", 12345, data.draw(st.sampled_from([None, SHA256]))).id
    index = data.draw(st.integers(0, len(issued) - 1))
    changed = issued[:index] + data.draw(st.sampled_from("0A.-_z~/é\n")) + issued[index + 1 :]
    if changed != issued:
        with pytest.raises(InvalidInput):
            uploads.parse("t", changed)


@pytest.mark.parametrize("text", ["", "x", "../../topic.json", "s3://bucket/key", "http://127.0.0.1/", "." * 5, "é"])
def test_other_texts_are_no_ids(uploads: Uploads, text: str) -> None:
    with pytest.raises(InvalidInput, match="not issued for topic 't'"):
        uploads.parse("t", text)


def test_what_is_issued_for_one_member_of_a_topic_group_is_no_others(uploads: Uploads) -> None:
    issued = uploads.issue("shop", 12, None, member="payments")
    assert uploads.parse("shop", issued.id, member="payments") == issued
    alone = uploads.issue("shop", 12, None)
    for upload, topic, member, name in (
        (issued, "shop", "orders", "orders"),
        (issued, "shop", None, "shop"),
        (issued, "payments", None, "payments"),
        (issued, "market", "payments", "payments"),
        (alone, "shop", "payments", "payments"),
    ):
        with pytest.raises(InvalidInput, match=f"not issued for topic '{name}'") as caught:
            uploads.parse(topic, upload.id, member=member)
        assert caught.value.remedy == Remedy("get-upload-id", topic=name)


def test_fields_cannot_be_moved_into_each_other(uploads: Uploads) -> None:
    """The MAC is over the fields with borders between them."""
    ulid, size, _, mac = uploads.issue("t", 12, None).id.split(".")
    for forged in (f"{ulid}.1.2.{mac}", f"{ulid}.012..{mac}", f"{ulid}.{size}..{mac}x", f"{ulid}.{size}.{mac}"):
        with pytest.raises(InvalidInput):
            uploads.parse("t", forged)


async def test_references_are_pinned(uploads: Uploads, store: MemoryStore) -> None:
    issued = uploads.issue("t", 4, SHA256)
    await store.create(keys.upload("t", issued.id), b"data")
    etag = (await store.head(keys.upload("t", issued.id))).etag
    for claim in (Claim(issued.id), Claim(issued.id, 4, etag, SHA256)):
        reference = await uploads.verify("t", claim)
        assert reference.to_row() == {"uri": f"uploads/{issued.id}", "size": 4, "etag": etag, "sha256": SHA256}
    for wrong, part in [
        (Claim(issued.id, 5), "size is 4, not 5"),
        (Claim(issued.id, etag="x"), "etag is"),
        (Claim(issued.id, sha256="0" * 64), "sha256 is"),
    ]:
        with pytest.raises(InvalidInput, match=part):
            await uploads.verify("t", wrong)


async def test_what_is_there_must_be_what_was_declared(uploads: Uploads, store: MemoryStore) -> None:
    issued = uploads.issue("t", 5, None)
    with pytest.raises(InvalidInput, match="has not arrived"):
        await uploads.verify("t", Claim(issued.id))
    await store.create(keys.upload("t", issued.id), b"data")
    with pytest.raises(InvalidInput, match="size is 4, not 5 as declared for the upload"):
        await uploads.verify("t", Claim(issued.id))


async def test_uploads_expire(uploads: Uploads, store: MemoryStore, clock: ManualClock) -> None:
    issued = uploads.issue("t", 4, None)
    await store.create(keys.upload("t", issued.id), b"data")
    await clock.advance(EXPIRES_SECONDS - 1)
    await uploads.verify("t", Claim(issued.id))
    await clock.advance(2)
    with pytest.raises(InvalidInput, match="has expired"):
        await uploads.verify("t", Claim(issued.id))
