"""Tokens of claims: read back, and nothing else is."""

import pytest

from filer.errors import InvalidInput
from groups.claim_tokens import ClaimTokens
from groups.queue.claims import MOST_RANGES
from groups.queue.leases import Claim

TOKENS = ClaimTokens(b"secret", "t/g", "01J")


@pytest.mark.parametrize("claim", [Claim(0, 0, 1), Claim(3, 2**40, 200), Claim(2**31, 7, 1)])
def test_what_is_made_is_read(claim: Claim) -> None:
    assert TOKENS.read(TOKENS.token(claim, claim.first + 5)) == (claim, claim.first + 5, False, None)


def test_a_claim_of_an_incarnation_before_is_known_and_over() -> None:
    before = ClaimTokens(b"secret", "t/g", "01H").token(Claim(3, 5, 1), 7)
    assert TOKENS.read(before) == (Claim(3, 5, 1), 7, True, None)


def test_a_claim_of_many_ranges_is_read() -> None:
    claim, ranges = Claim(3, 2**40, 2), tuple((2**40 + 3 * n, 2**40 + 3 * n + 1 + n % 2) for n in range(MOST_RANGES))
    token = TOKENS.scattered_token(claim, ranges)
    assert TOKENS.read(token) == (claim, ranges[-1][1], False, ranges)
    # The first messages may be gone. Those that are far apart take more room.
    far = tuple((2**40 + 2**32 * n, 2**40 + 2**32 * n + 10_000) for n in range(1, MOST_RANGES + 1))
    assert TOKENS.read(TOKENS.scattered_token(claim, far)).ranges == far
    assert ClaimTokens(b"secret", "t/g", "01H").read(token) == (claim, ranges[-1][1], True, ranges)
    for other in (ClaimTokens(b"secret", "t/h", "01J"), ClaimTokens(b"other", "t/g", "01J")):
        with pytest.raises(InvalidInput, match="is not a claim of this group"):
            other.read(token)
    for wrong in (token[:-3], token + "AAAA", "B" + token[1:] if token[0] != "B" else "C" + token[1:]):
        with pytest.raises(InvalidInput, match="is not a claim of this group"):
            TOKENS.read(wrong)


def test_nothing_else_is_taken() -> None:
    token = TOKENS.token(Claim(3, 5, 1), 7)
    others = (
        ClaimTokens(b"secret", "t/h", "01J").token(Claim(3, 5, 1), 7),
        ClaimTokens(b"other", "t/g", "01J").token(Claim(3, 5, 1), 7),
    )
    changed = [token[:i] + ("A" if token[i] != "A" else "B") + token[i + 1 :] for i in range(len(token) - 1)]
    for wrong in ("", "x", "\u00fc", "=" * 8, token[:-2], token + "AAAA", "A" * 10_000, *others, *changed):
        with pytest.raises(InvalidInput, match="is not a claim of this group"):
            TOKENS.read(wrong)
