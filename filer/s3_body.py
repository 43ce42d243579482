"""Bodies of requests to S3."""

import io

PIECE_BYTES = 256 * 1024


class Body(io.BytesIO):
    """Bytes that are sent in pieces of `PIECE_BYTES`, which is how they are iterated over.

    By lines, as other bytes are, a file of 8 MB, which ends one every 256 bytes or so, held up the event loop for more
    than a second. As a whole 64 MiB hold it up for a quarter of a second, while TLS encrypts them.
    """

    def __next__(self) -> bytes:
        """The next piece."""
        if piece := self.read(PIECE_BYTES):
            return piece
        raise StopIteration
