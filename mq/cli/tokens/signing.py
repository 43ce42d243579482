"""`mq token rotate-key` and `mq token public-keys`: the keys that sign tokens."""

import json
from pathlib import Path
from typing import Annotated

import typer

from filer.clock import SystemClock
from filer.errors import InvalidInput
from mq.cli.options import Json
from mq.cli.output import print_json, print_lines

SigningKeysFile = Annotated[
    Path,
    typer.Option(
        "--signing-keys",
        metavar="FILE",
        help="The private keys. Keep this file where tokens are made; brokers do not need it.",
        show_default=False,
    ),
]


def rotate_key(
    signing_keys: SigningKeysFile,
    public_keys: Annotated[
        Path | None,
        typer.Option("--public-keys", metavar="FILE", help="The public keys, for mq serve --token-keys."),
    ] = None,
    keep: Annotated[
        int, typer.Option("--keep", min=0, max=20, help="How many of the keys before stay good. 0 ends their tokens.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Make a new key that signs tokens from now on; the first time, make the files.

    Brokers take the new public keys within a second, without a restart. Where they get them in another way than by this
    file, give them the public keys first, and the signing keys to whoever makes tokens afterwards.
    """
    # Imported here: cryptography takes a tenth of a second, and help does not need it.
    from mq.security.signing_keys import SigningKeys, key_ids, read_signing_keys
    from mq.security.written_files import write_replacing

    if public_keys is not None and public_keys.absolute() == signing_keys.absolute():
        raise InvalidInput("--signing-keys and --public-keys are the same file: brokers must not have the private keys")
    before = read_signing_keys(signing_keys) if signing_keys.exists() else SigningKeys(())
    clock = SystemClock()
    after = before.rotated(clock, keep)
    # Stopped between the two, brokers know a key that signs nothing yet. The other way round they would refuse tokens.
    if public_keys is not None:
        write_replacing(public_keys, f"{json.dumps(after.public(), indent=2)}\n", mode=0o644, clock=clock)
    write_replacing(signing_keys, f"{json.dumps({'keys': list(after.keys)}, indent=2)}\n", mode=0o600, clock=clock)
    new, older = key_ids(after.keys)[-1], key_ids(after.keys)[:-1]
    dropped = [each for each in key_ids(before.keys) if each not in older]
    if as_json:
        print_json({"key": new, "kept": older, "dropped": dropped})
        return
    print_lines(f"key {new} signs tokens from now on")
    if older:
        print_lines(f"tokens of {', '.join(older)} stay good until they expire")
    if dropped:
        print_lines(f"tokens of {', '.join(dropped)} are refused once brokers have the new public keys")


def public_keys(signing_keys: SigningKeysFile) -> None:
    """Print the public keys, which is what brokers need (mq serve --token-keys)."""
    from mq.security.signing_keys import read_signing_keys

    print_json(read_signing_keys(signing_keys).public())
