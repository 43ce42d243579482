"""Tokens that name claims: what a consumer gets with a message, and shows when it acks it."""

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

from filer.errors import InvalidInput
from filer.varint import varint, varints
from groups.queue.leases import Claim

MAC_BYTES = 8
MOST_CHARS = 120


class ClaimedRange(NamedTuple):
    """A claim, and the offset behind its last message."""

    claim: Claim
    stop: int


class ClaimTokens:
    """Makes and reads the tokens of one group. Nobody else can make one that is taken for its own."""

    def __init__(self, secret: bytes, group_id: str) -> None:
        self._key = hashlib.blake2b(b"braidmq claims " + group_id.encode(), key=secret[:64], digest_size=32).digest()

    def token(self, claim: Claim, stop: int) -> str:
        """The token of the messages `[claim.first, stop)`."""
        body = b"".join(map(varint, (claim.segment, claim.first, stop - claim.first, claim.delivery)))
        return base64.urlsafe_b64encode(self._mac(body) + body).rstrip(b"=").decode()

    def read(self, token: str) -> ClaimedRange:
        """What a token names. Raises `InvalidInput` for one that this group has not given to anybody."""
        wrong = f"{token[:40]!r} is not a claim of this group: pass `claim` on as it came with the message"
        try:
            raw = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error, ValueError) as error:
            raise InvalidInput(wrong) from error
        body = raw[MAC_BYTES:]
        if len(token) > MOST_CHARS or not hmac.compare_digest(raw[:MAC_BYTES], self._mac(body)):
            raise InvalidInput(wrong)
        segment, first, count, delivery = varints(body)
        return ClaimedRange(Claim(segment, first, delivery), first + count)

    def _mac(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, key=self._key, digest_size=MAC_BYTES).digest()
