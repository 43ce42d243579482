"""Which names the cluster's own tokens may have."""

import pytest

from filer.errors import InvalidInput
from mq.base.errors import Unauthenticated
from mq.security.own_names import check_own_name
from mq.security.signed_tokens import Audience, verify
from mq.security.static_tokens import digest_of, parse_static_tokens
from tests.support.token_maker import NOW_SECONDS, TokenMaker

OTHERS = ["certificate:billing", "uid:0", "https://id.example.org#ann", "a*", "", "x" * 201, "a\nb"]


@pytest.mark.parametrize("name", OTHERS)
def test_names_of_others_are_refused_wherever_a_token_is_made_or_read(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_own_name(name)
    maker = TokenMaker()
    with pytest.raises(Unauthenticated):
        verify(maker.token(sub=name), maker.ring, Audience("braidmq", {}), NOW_SECONDS)
    stanza = f'[[token]]\nname = "{name}"\nsha256 = "{digest_of("braidmq_x")}"\ngrants = ["cluster:observe"]\n'
    with pytest.raises(InvalidInput):
        parse_static_tokens(stanza.encode())


@pytest.mark.parametrize("name", ["ann", "billing/certificate", "team:shop", "ann@example.org"])
def test_other_names_are_as_one_likes(name: str) -> None:
    assert check_own_name(name) == name
