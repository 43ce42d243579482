"""What the bytes of a payload are checked by."""

import hashlib

import pytest

from filer.errors import CorruptFile
from filer.uploads import Reference
from filer.verification.payload_check import PayloadCheck
from filer.verification.stored_payloads import CheckedPayloads

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
    assert [checked.add(key) for key in ("a", "b", "a", "c", "a", "b")] == [True, True, False, True, False, True]
