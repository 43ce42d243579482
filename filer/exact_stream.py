"""The check that a stream of chunks is what was announced: exactly that many bytes, with that SHA-256."""

import hashlib

from filer.errors import InvalidInput
from filer.store import Data


class ExactStream:
    """Counts and hashes chunks as they pass, and refuses them where they do not fit what was announced."""

    def __init__(self, *, size_bytes: int, sha256: str | None) -> None:
        self._expected_bytes = size_bytes
        self._expected_sha256 = sha256
        self._seen_bytes = 0
        self._hash = hashlib.sha256()

    def add(self, chunk: Data) -> None:
        """Take the next chunk into account; raises `InvalidInput` once there are too many bytes."""
        self._seen_bytes += len(chunk)
        if self._seen_bytes > self._expected_bytes:
            raise InvalidInput(f"the payload is longer than the {self._expected_bytes} bytes it was announced with")
        self._hash.update(chunk)

    def finish(self) -> str:
        """The SHA-256 as hex; raises `InvalidInput` where bytes are missing or another was announced."""
        if self._seen_bytes < self._expected_bytes:
            raise InvalidInput(
                f"the payload ended after {self._seen_bytes} bytes, announced were {self._expected_bytes}"
            )
        digest = self._hash.hexdigest()
        if self._expected_sha256 is not None and digest != self._expected_sha256.lower():
            raise InvalidInput(f"the payload's SHA-256 is {digest}, announced was {self._expected_sha256}")
        return digest
