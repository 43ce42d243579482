from math import inf

import pytest

from filer.errors import InvalidInput
from mq.security.static_tokens import digest_of, parse_static_tokens

TOKEN = "braidmq_secret"
GOOD = f'[[token]]\nname = "billing"\nsha256 = "{digest_of(TOKEN)}"\ngrants = ["topic:orders-*:read"]\n'


def test_who_has_the_token_is_who_the_file_says() -> None:
    tokens = parse_static_tokens(GOOD.encode())
    principal = tokens.find(TOKEN, 0)
    assert principal is not None and principal.name == "billing" and principal.until_seconds == inf
    assert [str(each) for each in principal.grants.all] == ["topic:orders-*:read"]
    assert tokens.find("braidmq_other", 0) is None and tokens.find("", 0) is None
    assert tokens.find(digest_of(TOKEN), 0) is None, "the hash is no token"


def test_a_token_ends() -> None:
    tokens = parse_static_tokens(f"{GOOD}until = 1970-01-01T00:01:40Z\n".encode())
    assert tokens.find(TOKEN, 99.9) is not None and tokens.find(TOKEN, 100) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[token", "it is no TOML"),
        ("[[tokens]]", "unknown table 'tokens': did you mean 'token'?"),
        ("token = 7", "a token is a table [[token]]"),
        ("token = [7]", "token 1 of 1: it is no table"),
        (GOOD.replace("name", "nam"), "token 1 of 1: unknown field 'nam': did you mean 'name'?"),
        (GOOD.replace('"billing"', '""'), "it needs a name"),
        (GOOD.replace("sha256 =", "until = 1\n#"), "it needs sha256"),
        (GOOD.replace(digest_of(TOKEN), TOKEN), "it needs sha256, the hash of the token"),
        (GOOD.replace('["topic:orders-*:read"]', '"topic:orders-*:read"'), "it needs grants, a list of texts"),
        (GOOD.replace(":read", ":raed"), "unknown action 'raed'"),
        (f"{GOOD}until = 2027-01-01T00:00:00", "until is no time with a zone"),
        (f"{GOOD}until = 7", "until is no time with a zone"),
        (GOOD + GOOD, "token 2 of 2: it has the hash of another one"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_static_tokens(text.encode())
    assert why in str(caught.value)
