"""Checks the payload that a message refers to against the reference. Pure: the caller reads the bytes."""

import hashlib
import re

from filer.errors import CorruptFile
from filer.uploads import Reference

_MD5 = re.compile(r"[0-9a-f]{32}\Z")


class PayloadCheck:
    """The check of one payload. Give it all bytes, in order.

    A SHA-256 that was announced with the upload decides. Without one, the ETag may show the same: S3 has the MD5 of the
    bytes as ETag, unless it encrypts them by a key of its own.
    """

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._etag = reference.etag.strip('"')
        self._digest = self._hasher()
        self._given_bytes = 0

    def _hasher(self) -> "hashlib._Hash | None":
        if self._reference.sha256 is not None:
            return hashlib.sha256()
        return hashlib.md5(usedforsecurity=False) if _MD5.match(self._etag) else None

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._given_bytes += len(data)
        if self._digest is not None:
            self._digest.update(data)

    def finish(self, etag: str) -> bool:
        """Whether there was anything to check it by, once all bytes of the object with this ETag were given.

        Raises `CorruptFile` if it is not the payload that the message refers to.
        """
        check_size(self._reference, self._given_bytes)
        if self._digest is None:
            return False
        expected, found = self._reference.sha256, self._digest.hexdigest()
        if expected is not None:
            if found != expected.lower():
                raise CorruptFile(f"it is damaged: its SHA-256 is {found}, and not the {expected} that was announced")
            return True
        if found == self._etag:
            return True
        if etag.strip('"') != self._etag:
            raise CorruptFile(f"it is another object: its ETag is {etag}, and not {self._reference.etag}")
        return False


def check_size(reference: Reference, size_bytes: int) -> None:
    """Raise `CorruptFile` if a payload of that size is not what the message refers to."""
    if size_bytes != reference.size_bytes:
        raise CorruptFile(f"it has {size_bytes} bytes, and not the {reference.size_bytes} that were uploaded")
