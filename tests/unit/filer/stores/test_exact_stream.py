from hashlib import sha256

import pytest

from filer.errors import InvalidInput
from filer.stores.exact_stream import ExactStream


@pytest.mark.parametrize("given", [None, sha256(b"abc").hexdigest()])
def test_exact_stream_passes(given: str | None) -> None:
    stream = ExactStream(size_bytes=3, sha256=given)
    for chunk in (b"a", bytearray(b"b"), memoryview(b"c")):
        stream.add(chunk)
    assert stream.finish() == sha256(b"abc").hexdigest()


def test_too_long_is_told_at_once() -> None:
    stream = ExactStream(size_bytes=3, sha256=None)
    stream.add(b"ab")
    with pytest.raises(InvalidInput, match="longer than the 3 bytes"):
        stream.add(b"cd")


def test_too_short_is_told_at_the_end() -> None:
    stream = ExactStream(size_bytes=3, sha256=None)
    stream.add(b"ab")
    with pytest.raises(InvalidInput, match="after 2 bytes, but 3 were announced"):
        stream.finish()


def test_other_content_is_told_at_the_end() -> None:
    stream = ExactStream(size_bytes=3, sha256=sha256(b"xyz").hexdigest())
    stream.add(b"abc")
    with pytest.raises(InvalidInput, match=f"SHA-256 is {sha256(b'abc').hexdigest()}"):
        stream.finish()
