"""`mq token revoke`: brokers refuse a token, or all tokens of a principal, from now on."""

import math
import re
import sys
from typing import Annotated, Any

import typer

from braidmq import AsyncClient
from braidmq.errors import PolicyChanged
from braidmq.models import ClusterPolicy
from filer.clock import Clock, SystemClock
from filer.errors import InvalidInput
from filer.times import rfc3339_short
from mq.cli.connect import with_client
from mq.cli.options import DEFAULT_URL, Json, Timeout, Url
from mq.cli.output import print_json, print_lines
from mq.cli.tokens.token import LONGEST_TTL_SECONDS

LONGEST_ID = 200
_OWN_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_TRIES = 10
_SECOND_US = 1_000_000
_SECTIONS = ("grants", "revoked_tokens", "revoked_principals", "quotas")


def revoke(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="The token's file; - reads stdin.", show_default=False)
    ] = None,
    token_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The token of this id, its jti in mq token inspect, and not a file."),
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option("--principal", metavar="NAME", help="All tokens that this principal has had up to now."),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Have all brokers refuse a signed token, within a second, by the policy of the cluster. What it has open ends.

    It stays in the policy until the token would have ended; by its --id alone, for 366 days. Brokers keep no list of
    tokens: whether one has that id is not known. A principal's stays until
    somebody takes it out, and certificates and tokens that do not tell when they were issued count as older.
    """
    if sum(each is not None for each in (file, token_id, principal)) != 1:
        raise InvalidInput("name what to revoke, one thing: a FILE with a token, --id, or --principal")
    clock = SystemClock()
    if principal is not None:
        # Tokens have the second of their issue: the next one that is issued after this command is good.
        before_us = (clock.now_us() // _SECOND_US + 1) * _SECOND_US
        after = with_client(url, timeout, lambda client: _all_of(client, clock, principal, before_us))
        told = {"principal": principal, "before": rfc3339_short(before_us)}
        text = f"tokens of {principal} from before {rfc3339_short(before_us)} are refused"
    else:
        entry = _entry(_read(file)) if file is not None else _by_id(str(token_id), clock)
        after = with_client(url, timeout, lambda client: _with(client, "revoked_tokens", "id", entry))
        told, text = entry, _words(entry, by_id=file is None)
    if as_json:
        print_json({**told, "version": after.version})
    else:
        print_lines(f"{text}: policy version {after.version}")


def _words(entry: dict[str, str], *, by_id: bool) -> str:
    """The result in words. No list has the ids of tokens, so a mistyped one looks like any other."""
    if not by_id:
        return f"token {entry['id']} is refused, until it ends at {entry['until']}"
    is_own = _OWN_ID.fullmatch(entry["id"])
    hint = "" if is_own else "; tokens of the cluster's own keys have ids of 26 characters"
    return f"token {entry['id']} is refused, until {entry['until']}, if there is one: no broker keeps a list{hint}"


async def _all_of(client: AsyncClient, clock: Clock, principal: str, before_us: int) -> ClusterPolicy:
    entry = {"principal": principal, "before": rfc3339_short(before_us)}
    after = await _with(client, "revoked_principals", "principal", entry)
    await clock.sleep(max(0.0, (before_us - clock.now_us()) / 1e6))
    return after


async def _with(client: AsyncClient, section: str, field: str, entry: dict[str, str]) -> ClusterPolicy:
    """The policy with that entry, in place of one about the same, whatever others change meanwhile."""
    tries_left = _TRIES
    while True:
        before = await client.policy()
        sections: dict[str, list[dict[str, Any]]] = {name: getattr(before, name) for name in _SECTIONS}
        others = [each for each in sections[section] if each.get(field) != entry[field]]
        try:
            return await client.set_policy({**sections, section: [*others, entry]}, etag=before.etag)
        except PolicyChanged:
            tries_left -= 1
            if not tries_left:
                raise


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read().strip()
    with open(file) as opened:
        return opened.read().strip()


def _entry(token: str) -> dict[str, str]:
    """The revocation of a token. Raises `InvalidInput` if it has no id."""
    # Imported here: cryptography takes a tenth of a second, and help does not need it.
    from mq.security.signed_tokens import unverified

    if "." not in token:
        raise InvalidInput("this is no signed token: a static one ends when its table is taken out of --static-tokens")
    _, claims = unverified(token)
    token_id, until = claims.get("jti"), claims.get("exp")
    if not isinstance(token_id, str) or not token_id:
        raise InvalidInput("the token has no id (jti): revoke all of its principal, with --principal")
    if not isinstance(until, int | float) or not 0 < until < 2**35:
        raise InvalidInput("the token has no end (exp), so no broker accepts it")
    return {"id": token_id, "until": rfc3339_short(math.ceil(until) * _SECOND_US)}


def _by_id(token_id: str, clock: Clock) -> dict[str, str]:
    """The revocation of a token by its id alone. Raises `InvalidInput` for an id that no token can have."""
    if token_id.count(".") == 2 and len(token_id) > LONGEST_ID // 2:
        raise InvalidInput("--id: that is a token, and not its id: name the file that has it")
    if not 0 < len(token_id) <= LONGEST_ID or not token_id.isprintable() or " " in token_id:
        raise InvalidInput(
            f"--id: {token_id!r:.220} is no id of a token: that has 1 to {LONGEST_ID} printable characters and no "
            "space, as mq token inspect shows it (jti)"
        )
    return {"id": token_id, "until": rfc3339_short(clock.now_us() + int(LONGEST_TTL_SECONDS) * _SECOND_US)}
