"""Tokens that name claims: what a consumer gets with a message, and shows when it acks it."""

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

from filer.errors import InvalidInput
from filer.varint import varint, varints
from groups.queue.leases import Claim

MAC_BYTES, INCARNATION_BYTES = 8, 4
MOST_CHARS = 120


class ClaimedRange(NamedTuple):
    """A claim, and the offset behind its last message. `is_over`: the group was reset since, or made anew."""

    claim: Claim
    stop: int
    is_over: bool = False


class ClaimTokens:
    """Makes and reads the tokens of one incarnation of a group, `key` being `<topic>/<group>`.

    Nobody else can make one that is taken for its own.
    """

    def __init__(self, secret: bytes, key: str, group_id: str) -> None:
        self._key = hashlib.blake2b(b"braidmq claims " + key.encode(), key=secret[:64], digest_size=32).digest()
        self._incarnation = hashlib.blake2b(group_id.encode(), digest_size=INCARNATION_BYTES).digest()

    def token(self, claim: Claim, stop: int) -> str:
        """The token of the messages `[claim.first, stop)`."""
        numbers = (claim.segment, claim.first, stop - claim.first, claim.delivery)
        body = self._incarnation + b"".join(map(varint, numbers))
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
        segment, first, count, delivery = varints(body[INCARNATION_BYTES:])
        is_over = body[:INCARNATION_BYTES] != self._incarnation
        return ClaimedRange(Claim(segment, first, delivery), first + count, is_over)

    def _mac(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, key=self._key, digest_size=MAC_BYTES).digest()
