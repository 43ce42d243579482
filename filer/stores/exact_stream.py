"""Checks that a stream of chunks has the announced size and SHA-256."""

import hashlib

from filer.errors import InvalidInput
from filer.stores.store import Data


class ExactStream:
    """Counts and hashes chunks, and refuses them if they do not match what was announced."""

    def __init__(self, *, size_bytes: int, sha256: str | None) -> None:
        self._expected_bytes = size_bytes
        self._expected_sha256 = sha256
        self._read_bytes = 0
        self._hash = hashlib.sha256()

    def add(self, chunk: Data) -> None:
        """Add the next chunk. Raises `InvalidInput` if there are more bytes than announced."""
        self._read_bytes += len(chunk)
        if self._read_bytes > self._expected_bytes:
            raise InvalidInput(f"the payload is longer than the {self._expected_bytes} bytes that were announced")
        self._hash.update(chunk)

    def finish(self) -> str:
        """The SHA-256 in hex. Raises `InvalidInput` if bytes are missing or another SHA-256 was announced."""
        if self._read_bytes < self._expected_bytes:
            raise InvalidInput(
                f"the payload ended after {self._read_bytes} bytes, but {self._expected_bytes} were announced"
            )
        digest = self._hash.hexdigest()
        if self._expected_sha256 is not None and digest != self._expected_sha256.lower():
            raise InvalidInput(f"the payload's SHA-256 is {digest}, but {self._expected_sha256} was announced")
        return digest
