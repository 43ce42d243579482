"""What the bytes of a payload are checked by."""

import hashlib

import pytest

from filer.errors import CorruptFile
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import ObjectInfo
from filer.uploads import Reference
from filer.verification.payload_check import PayloadCheck
from filer.verification.stored_payloads import CheckedPayloads, verify_payloads
from tests.support.topic.segment_files import append

DATA = b"a payload"
SHA256 = hashlib.sha256(DATA).hexdigest()
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
OF_A_FILE = "18ea06d8b96d0a62-9"
BY_A_KEY = "0123456789abcdef0123456789abcdef"
"""What S3 gives for an object that it encrypts with a key of its own: it looks like an MD5."""


def check(reference: Reference, *pieces: bytes, etag: str = "any") -> bool:
    check = PayloadCheck(reference)
    for piece in pieces:
        check.add(piece)
    return check.finish(etag)


def reference(*, etag: str, sha256: str | None = None) -> Reference:
    return Reference("uploads/u", len(DATA), etag, sha256)


@pytest.mark.parametrize("etag", [OF_A_FILE, MD5, BY_A_KEY])
def test_the_announced_sha256_counts(etag: str) -> None:
    """Also where an object was put back, and has another ETag since."""
    assert check(reference(etag=etag, sha256=SHA256), DATA[:3], DATA[3:])
    assert check(reference(etag=etag, sha256=SHA256.upper()), DATA)
    with pytest.raises(CorruptFile, match=r"its SHA-256 is .* and not the .* that was announced"):
        check(reference(etag=etag, sha256=SHA256), b"b payload", etag=etag)


@pytest.mark.parametrize("etag", [MD5, f'"{MD5}"'])
def test_without_one_an_etag_may_show_it(etag: str) -> None:
    assert check(reference(etag=etag), DATA)
    with pytest.raises(CorruptFile, match="it is another object: its ETag is other"):
        check(reference(etag=etag), b"b payload", etag="other")


def test_other_etags_show_nothing() -> None:
    assert not check(reference(etag=OF_A_FILE), b"b payload")
    assert not check(reference(etag=BY_A_KEY), b"b payload", etag=f'"{BY_A_KEY}"')
    with pytest.raises(CorruptFile, match="another object"):
        check(reference(etag=BY_A_KEY), b"b payload", etag="other")


@pytest.mark.parametrize("data", [b"", DATA[1:], DATA + b"!"])
@pytest.mark.parametrize("sha256", [None, SHA256])
def test_the_size_always_counts(data: bytes, sha256: str | None) -> None:
    with pytest.raises(CorruptFile, match=f"it has {len(data)} bytes, and not the 9 that were uploaded"):
        check(reference(etag=OF_A_FILE, sha256=sha256), data)


def test_so_many_are_remembered_and_the_last_ones() -> None:
    checked = CheckedPayloads(limit=2)
    known = []
    for key in ("a", "b", "a", "c", "a", "b"):
        known.append(key in checked)
        checked.add(key)
    assert known == [False, False, True, False, True, False]


class RollsUpStore(ForwardingStore):
    """Somebody rolls up a file and deletes it while its payload is looked for."""

    def __init__(self, inner: MemoryStore, file: str) -> None:
        super().__init__(inner)
        self._file = file

    async def head(self, key: str) -> ObjectInfo:
        if "/uploads/" in key:
            await self.inner.delete([self._file])
        return await super().head(key)


async def test_a_payload_of_a_file_that_is_rolled_up_meanwhile_is_told_with_the_roll_up() -> None:
    store, ref, index = MemoryStore(), SegmentRef("t", 0), SegmentIndex()
    for _ in range(2):
        await append(store, ref, index, 1, uris=["uploads/u"])
    checked = CheckedPayloads()
    racing = RollsUpStore(store, ref.key(FileName(0)))
    assert [each async for each in verify_payloads(racing, ref, {FileName(0): 0}, checked)] == []
    [told] = [each async for each in verify_payloads(store, ref, {FileName(1): 1}, checked)]
    assert (told.key, told.condition) == ("topics/t/uploads/u", "missing")
    assert [each async for each in verify_payloads(store, ref, {FileName(1): 1}, checked)] == []
