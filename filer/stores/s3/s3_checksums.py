"""Checksums of puts: S3 compares what arrives with the CRC-32 in a header, and keeps it with the object.

Not every store that speaks S3 knows the header. The first put on which the store decides shows whether this one does.
"""

import base64
import zlib

from botocore.exceptions import ClientError

from filer.stores.s3.s3_errors import code_of, status_of

_REFUSALS = {(400, "InvalidArgument"), (400, "InvalidRequest"), (501, "NotImplemented")}
"""Answers of a store that does not know a header. All of them mean that nothing was stored."""


class PutChecksums:
    """Whether puts to this store get a checksum: yes, until the store refuses the first one for it."""

    def __init__(self) -> None:
        self.sent = True
        self._taken = False

    def headers_for(self, data: bytes) -> dict[str, str]:
        """The arguments of a put for its checksum; none if the store does not take any."""
        return {"ChecksumCRC32": base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()} if self.sent else {}

    def note_taken(self) -> None:
        """Note that a put with a checksum has succeeded: a later refusal is about the data, not about the header."""
        self._taken = True

    def may_be_why(self, error: ClientError) -> bool:
        """Whether a put may have been refused because it has a checksum. Then nothing was stored, for certain."""
        return self.sent and not self._taken and (status_of(error), code_of(error)) in _REFUSALS
