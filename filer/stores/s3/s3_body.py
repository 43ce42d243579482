"""The bodies of requests to S3."""

import io

PIECE_BYTES = 256 * 1024


class Body(io.BytesIO):
    """Bytes whose iterator yields pieces of `PIECE_BYTES`; the HTTP client sends them piece by piece.

    `BytesIO` yields lines instead. A line of random bytes has about 256 bytes, and a file of 8 MB sent by such lines
    blocked the event loop for more than a second. Sent whole, 64 MiB block it for a quarter of a second, while TLS
    encrypts them.
    """

    def __next__(self) -> bytes:
        """The next piece."""
        if piece := self.read(PIECE_BYTES):
            return piece
        raise StopIteration
