"""`mq policy show` and `mq policy apply`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from braidmq import AsyncClient
from braidmq.models import ClusterPolicy
from filer.errors import InvalidInput
from mq.cli.connect import with_client
from mq.cli.failures import CommandFailed
from mq.cli.options import DEFAULT_URL, Json, Timeout, Url
from mq.cli.output import print_json, print_lines
from mq.cli.policy.policy_file import SECTIONS, changes, parse_policy_file, policy_text, read_policy_file


def show(url: Url = DEFAULT_URL, timeout: Timeout = None, as_json: Json = False) -> None:
    """Show the policy as TOML: grants, revocations and quotas. Change it, and give it to mq policy apply."""
    found = with_client(url, timeout, lambda client: client.policy())
    if as_json:
        print_json(found.model_dump())
    else:
        print_lines(policy_text(found.version, _sections(found)))


def apply(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The policy as TOML or JSON; - reads stdin.", show_default=False)
    ],
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Put what the file says into the policy, and tell what has changed by that. Sections that it lacks stay.

    With the version that mq policy show prints, it is refused if anybody has changed the policy since.
    """
    try:
        given = parse_policy_file(read_policy_file(str(file)))
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from error
    version = given.pop("version", None)

    async def work(client: AsyncClient) -> tuple[ClusterPolicy, ClusterPolicy]:
        before = await client.policy()
        if version not in (None, before.version):
            raise CommandFailed(
                f"the policy has version {before.version}, and the file is of version {version}: mq policy show shows "
                "the newer one; apply your change to that"
            )
        wanted: dict[str, Any] = _sections(before) | given
        if wanted == _sections(before):
            return before, before
        return before, await client.set_policy(wanted, etag=before.etag)

    before, after = with_client(url, timeout, work)
    lines = changes(_sections(before), _sections(after))
    if as_json:
        print_json({"version": after.version, "changes": lines})
    else:
        news = "" if after.version == before.version else " is in force"
        print_lines(*(lines or ["nothing is other than before"]), f"policy version {after.version}{news}")


def _sections(policy: ClusterPolicy) -> dict[str, list[dict[str, Any]]]:
    return {name: getattr(policy, name) for name in SECTIONS}
