import pytest

from mq.base.errors import Unauthenticated
from mq.security.authorization import authorization_of
from mq.security.caller import ShownCertificate
from mq.security.credentials import MOST_REMEMBERED, Credentials, Known
from mq.security.signed_tokens import SKEW_SECONDS, Audience
from mq.security.static_tokens import digest_of, parse_static_tokens
from tests.support.instant_clock import InstantClock
from tests.support.token_maker import NOW_SECONDS, TokenMaker

STATIC = "braidmq_static"


class _Clock(InstantClock):
    def __init__(self) -> None:
        super().__init__()
        self.seconds = NOW_SECONDS

    def now_us(self) -> int:
        return int(self.seconds * 1e6)


def credentials(maker: TokenMaker, clock: _Clock, asked: list[None] | None = None) -> Credentials:
    on_unknown = None if asked is None else lambda: asked.append(None)
    made = Credentials(clock, Audience("braidmq", {}), on_unknown_key=on_unknown)
    stanza = f'[[token]]\nname = "bob"\nsha256 = "{digest_of(STATIC)}"\ngrants = ["cluster:observe"]\n'
    made.use(Known(maker.ring, parse_static_tokens(stanza.encode())))
    return made


def test_a_token_is_verified_once_and_ends_all_the_same() -> None:
    maker, clock = TokenMaker(), _Clock()
    checked = credentials(maker, clock)
    header = f"Bearer {maker.token(exp=NOW_SECONDS + 10)}".encode()
    assert checked.principal(header) is checked.principal(header)
    clock.seconds += 10 + SKEW_SECONDS
    with pytest.raises(Unauthenticated, match="has expired"):
        checked.principal(header)


def test_what_was_verified_by_other_keys_does_not_count() -> None:
    maker, clock = TokenMaker(), _Clock()
    checked = credentials(maker, clock)
    header = f"Bearer {maker.token()}".encode()
    checked.principal(header)
    checked.use(Known(TokenMaker().ring))
    with pytest.raises(Unauthenticated, match="signature is not that of its key"):
        checked.principal(header)


def test_memory_is_bounded_and_bad_tokens_take_none() -> None:
    maker, clock = TokenMaker(), _Clock()
    checked = credentials(maker, clock)
    for number in range(MOST_REMEMBERED + 10):
        checked.principal(f"bearer {' ' * (number % 64)}{STATIC}{' ' * (number // 64)}".encode())
    assert len(checked) == MOST_REMEMBERED
    checked.use(checked.known)
    for number in range(100):
        with pytest.raises(Unauthenticated):
            checked.principal(b"Bearer braidmq_%d" % number)
    assert len(checked) == 0


@pytest.mark.parametrize(
    "value", [b"", b"Bearer", b"Bearer ", b"Basic YTpi", b"Bearer\tx", b"Bearer \xff\xfe", b"Token x", b"bearer x y"]
)
def test_what_is_no_bearer_token_is_refused(value: bytes) -> None:
    with pytest.raises(Unauthenticated):
        credentials(TokenMaker(), _Clock()).principal(value)


def test_an_unknown_key_is_told() -> None:
    asked: list[None] = []
    checked = credentials(TokenMaker(), _Clock(), asked)
    with pytest.raises(Unauthenticated):
        checked.principal(f"Bearer {TokenMaker(key_id='k9').token()}".encode())
    assert len(asked) == 1


def test_a_certificate_is_somebody_until_it_ends() -> None:
    clock = _Clock()
    checked = credentials(TokenMaker(), clock)
    shown = ShownCertificate("billing", NOW_SECONDS + 10)
    owner = checked.principal(shown)
    assert (owner.name, owner.grants.all, owner.until_seconds) == ("certificate:billing", (), NOW_SECONDS + 10)
    assert checked.principal(shown) is owner
    clock.seconds += 10
    with pytest.raises(Unauthenticated, match="the certificate of this connection has expired"):
        checked.principal(shown)


def test_two_headers_are_refused() -> None:
    assert authorization_of([(b"host", b"b")]) is None
    assert authorization_of([(b"authorization", b"a")]) == b"a"
    with pytest.raises(Unauthenticated, match="several"):
        authorization_of([(b"authorization", b"a"), (b"authorization", b"a")])
