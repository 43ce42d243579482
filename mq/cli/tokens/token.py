"""`mq token create`, `mq token create-static` and `mq token inspect`."""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from filer.clock import SystemClock
from filer.errors import InvalidInput
from filer.regular_file import read_regular_file
from mq.cli.failures import say
from mq.cli.options import Json, duration_seconds
from mq.cli.output import print_json, print_lines
from mq.cli.tokens.signing import SigningKeysFile

CLUSTER_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
LONGEST_TTL_SECONDS = 366 * 86_400.0
_STATIC = "braidmq_"
_MOST_BYTES = 64 * 1024
_LONGEST_NAME = 255
_TTL_PARSER = duration_seconds(1, LONGEST_TTL_SECONDS)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.", show_default=False)]
_Topics = Annotated[
    str | None, typer.Option("--topics", metavar="PATTERN", help="Topics: a name, or a prefix with * behind it.")
]
_Groups = Annotated[
    str | None, typer.Option("--groups", metavar="PATTERN", help="Only these consumer groups of the topics.")
]
_Allow = Annotated[
    str | None, typer.Option("--allow", metavar="ACTIONS", help="observe,read,publish,consume,load,manage, or *.")
]
_Grants = Annotated[
    list[str] | None,
    typer.Option("--grant", metavar="GRANT", help="A whole grant, as cluster:observe. May be repeated."),
]


def create(
    name: _Name,
    signing_keys: SigningKeysFile,
    topics: _Topics = None,
    groups: _Groups = None,
    allow: _Allow = None,
    grants: _Grants = None,
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="The cluster that it is for (mq serve --cluster).")
    ] = "braidmq",
    ttl: Annotated[
        float,
        typer.Option("--ttl", parser=_TTL_PARSER, metavar="DURATION", help="How long it is good.", show_default="1h"),
    ] = 3600.0,
    as_json: Json = False,
) -> None:
    """Sign a token with the newest key, and print it. Brokers check it without looking anything up."""
    # Imported here: cryptography takes a tenth of a second, and help does not need it.
    from mq.security.grants import parse_grants
    from mq.security.signing_keys import read_signing_keys

    asked = parse_grants([*(grants or []), *_shorthand(topics, groups, allow)])
    keys = read_signing_keys(signing_keys)
    token, claims = keys.sign(name, asked, audience=cluster, ttl_seconds=ttl, clock=SystemClock())
    if not CLUSTER_NAME.fullmatch(cluster):
        raise InvalidInput(f"--cluster: the name of a cluster has 1 to 100 of A-Z a-z 0-9 . _ -, not {cluster!r:.120}")
    if as_json:
        print_json({"token": token, **claims})
    else:
        print_lines(token)


def create_static(
    name: _Name,
    static_tokens: Annotated[
        Path,
        typer.Option(
            "--static-tokens",
            metavar="FILE",
            help="The file that has the hashes of tokens (mq serve --static-tokens). It is made if it is not there.",
            show_default=False,
        ),
    ],
    topics: _Topics = None,
    groups: _Groups = None,
    allow: _Allow = None,
    grants: _Grants = None,
    ttl: Annotated[
        float | None,
        typer.Option(
            "--ttl",
            parser=_TTL_PARSER,
            metavar="DURATION",
            help="How long it is good. Default: until somebody removes it from the file.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a random token, print it, and add its hash to a file. Brokers take the file within a second."""
    from mq.security.grants import parse_grants
    from mq.security.static_tokens import added, new_token, parse_static_tokens
    from mq.security.written_files import write_replacing

    clock = SystemClock()
    asked = parse_grants([*(grants or []), *_shorthand(topics, groups, allow)])
    before = static_tokens.read_bytes() if static_tokens.exists() else b""
    token = new_token(clock)
    until = None if ttl is None else datetime.fromtimestamp(clock.now_us() // 1_000_000 + int(ttl), UTC)
    # Printed only once it is good: no user has a token that no broker knows.
    try:
        text = added(before, name, token, asked, until)
    except InvalidInput as error:
        raise InvalidInput(f"{static_tokens}: {error}") from error
    write_replacing(static_tokens, text, mode=0o600, clock=clock)
    older = parse_static_tokens(before).count_of(name)
    if older:
        say(f"{name} has {older + 1} tokens in {static_tokens} now: each is good until you remove its table")
    if as_json:
        print_json({"token": token, "name": name, "until": None if until is None else until.isoformat()})
    else:
        print_lines(token)


def inspect(
    token: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The token's file; - reads stdin. A token itself does, too, but others may see it there.",
        ),
    ] = "-",
    public_keys: Annotated[
        Path | None,
        typer.Option("--public-keys", metavar="FILE", help="Check it as a broker with these keys does."),
    ] = None,
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="The cluster that it has to be for.")
    ] = "braidmq",
    as_json: Json = False,
) -> None:
    """Show what a signed token says: whose it is, what it allows, until when. With --public-keys, check it as well."""
    from mq.security.key_ring import KeyRing, parse_key_set
    from mq.security.signed_tokens import OWN_ISSUER, Audience, unverified, verify

    text = (sys.stdin.read() if token == "-" else _token_or_content(token)).strip()
    if text.startswith(_STATIC):
        raise InvalidInput(
            "a static token says nothing itself: the brokers' file (mq serve --static-tokens) has its hash, and what "
            "it allows"
        )
    header, claims = unverified(text)
    if public_keys is not None:
        ring = KeyRing(parse_key_set(public_keys.read_bytes(), OWN_ISSUER, strict=True))
        verify(text, ring, Audience(cluster, {}), SystemClock().now_us() / 1e6)
    shown = {**claims, "key": header.get("kid"), "algorithm": header.get("alg"), "checked": public_keys is not None}
    if as_json:
        print_json(shown)
        return
    print_lines(*(f"{name:<10} {_shown(name, value)}" for name, value in shown.items()))


def _token_or_content(given: str) -> str:
    """A token, or that of a file. Raises `InvalidInput` if it is neither a token nor a file."""
    path = Path(given)
    is_token = given.startswith(_STATIC) or (given.count(".") == 2 and "/" not in given and given.startswith("ey"))
    if is_token and (len(given) > _LONGEST_NAME or not path.exists()):
        return given
    try:
        return read_regular_file(path, _MOST_BYTES).decode("ascii", "replace")
    except IsADirectoryError as error:
        raise InvalidInput(f"{given} is a folder: name the file that has the token") from error
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no file {given!r:.210}, and it is no JSON Web Token either") from error


def _shorthand(topics: str | None, groups: str | None, allow: str | None) -> list[str]:
    """The grant of --topics, --groups and --allow together."""
    if topics is None and groups is None and allow is None:
        return []
    if topics is None or allow is None:
        raise InvalidInput("--topics and --allow belong together: --topics 'orders-*' --allow read,publish")
    return [f"topic:{topics}{'' if groups is None else f'/{groups}'}:{allow}"]


def _shown(name: str, value: Any) -> str:
    is_time = name in ("exp", "iat", "nbf") and isinstance(value, int | float) and 0 <= value < 2**35
    return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%SZ}" if is_time else str(value)
