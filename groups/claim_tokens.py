"""Tokens that name claims: a consumer gets one with a message, and shows it when it acks the message."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from filer.errors import InvalidInput
from filer.varint import varint, varints
from groups.queue.leases import Claim

MAC_BYTES, INCARNATION_BYTES = 8, 4
MOST_CHARS, MOST_SCATTERED_CHARS = 120, 4096
"""The length of a token of one range, and of one of `groups.queue.claims.MOST_RANGES`."""
_SCATTERED = b"ranges"
"""Distinguishes the tokens of several ranges. Brokers of earlier versions do not take those for their own."""


class ClaimedRange(NamedTuple):
    """A claim, and the offset behind its last message. `is_over`: the group was reset since, or created anew.

    `ranges` are its messages if they lie scattered. Else it has all from its first to its last.
    """

    claim: Claim
    stop: int
    is_over: bool = False
    ranges: tuple[tuple[int, int], ...] | None = None


class ClaimTokens:
    """Makes and reads the tokens of one incarnation of a group, `key` being `<topic>/<group>`.

    A token that others make is refused.
    """

    def __init__(self, secret: bytes, key: str, group_id: str) -> None:
        self._key = hashlib.blake2b(b"braidmq claims " + key.encode(), key=secret[:64], digest_size=32).digest()
        self._incarnation = hashlib.blake2b(group_id.encode(), digest_size=INCARNATION_BYTES).digest()

    def token(self, claim: Claim, stop: int) -> str:
        """The token of the messages `[claim.first, stop)`."""
        numbers = (claim.segment, claim.first, stop - claim.first, claim.delivery)
        body = self._incarnation + b"".join(map(varint, numbers))
        return _text(self._mac(body) + body)

    def scattered_token(self, claim: Claim, ranges: Sequence[tuple[int, int]]) -> str:
        """The token of the messages in these ranges, which are in order; none of them lies before `claim.first`."""
        numbers, reached = [claim.segment, claim.first, claim.delivery], claim.first
        for start, stop in ranges:
            numbers += (start - reached, stop - start)
            reached = stop
        body = self._incarnation + b"".join(map(varint, numbers))
        return _text(self._mac(body, _SCATTERED) + body)

    def read(self, token: str) -> ClaimedRange:
        """The range that a token names. Raises `InvalidInput` for a token that this group has not issued."""
        wrong = f"{token[:40]!r} is not a claim of this group: pass `claim` on as it came with the message"
        try:
            raw = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error, ValueError) as error:
            raise InvalidInput(wrong) from error
        mac, body = raw[:MAC_BYTES], raw[MAC_BYTES:]
        is_over = body[:INCARNATION_BYTES] != self._incarnation
        if len(token) <= MOST_CHARS and hmac.compare_digest(mac, self._mac(body)):
            segment, first, count, delivery = varints(body[INCARNATION_BYTES:])
            return ClaimedRange(Claim(segment, first, delivery), first + count, is_over)
        if len(token) <= MOST_SCATTERED_CHARS and hmac.compare_digest(mac, self._mac(body, _SCATTERED)):
            segment, first, delivery, *steps = varints(body[INCARNATION_BYTES:])
            ranges = tuple(_ranges(first, steps))
            return ClaimedRange(Claim(segment, first, delivery), ranges[-1][1], is_over, ranges)
        raise InvalidInput(wrong)

    def _mac(self, body: bytes, kind: bytes = b"") -> bytes:
        return hashlib.blake2b(body, key=self._key, digest_size=MAC_BYTES, person=kind).digest()


def _text(token: bytes) -> str:
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def _ranges(reached: int, steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    for gap, count in zip(steps[::2], steps[1::2], strict=True):
        start, reached = reached + gap, reached + gap + count
        yield start, reached
