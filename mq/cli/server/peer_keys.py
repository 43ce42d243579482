"""`mq peer-keys`: the keys by which brokers prove their identity to each other. No command asks a broker."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from filer.clock import SystemClock
from filer.errors import InvalidInput
from mq.cli.options import Json
from mq.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from mq.peer_keys.peer_keys import PeerKeys

KeysFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The keys, for mq serve --peer-keys. Keep it as secret as the messages."),
]


def add(file: KeysFile, as_json: Json = False) -> None:
    """Add a new key, which signs nothing yet. The first time, make the file with a key that signs.

    Give the file to all brokers. Once each of them has it, `mq peer-keys use` has the new key sign.
    """
    from mq.peer_keys.peer_keys import MOST_KEYS, PeerKeys, new_key

    before = _read(file).keys if file.exists() else ()
    if len(before) >= MOST_KEYS:
        raise InvalidInput(f"{file} has {len(before)} keys, and that is the most: mq peer-keys drop removes older ones")
    key = new_key(SystemClock())
    after = PeerKeys((*before, key))
    _write(file, after)
    _tell(after, f"key {key.id} {'verifies from now on' if before else 'signs from now on'}", as_json)


def use(file: KeysFile, as_json: Json = False) -> None:
    """Have the newest key sign. Do it once all brokers have the file with that key.

    The others still verify. Once all brokers have the file of now, `mq peer-keys drop` removes them.
    """
    from mq.peer_keys.peer_keys import PeerKeys

    before = _read(file).keys
    after = PeerKeys((before[-1], *before[:-1])) if len(before) > 1 else PeerKeys(before)
    _write(file, after)
    _tell(after, f"key {after.first.id} signs from now on", as_json)


def drop(file: KeysFile, as_json: Json = False) -> None:
    """Remove all keys but the one that signs. Do it once it signs at all brokers."""
    from mq.peer_keys.peer_keys import PeerKeys

    before = _read(file)
    after = PeerKeys(before.keys[:1])
    _write(file, after)
    _tell(after, f"{', '.join(before.ids[1:]) or 'nothing'} removed", as_json)


def list_keys(file: KeysFile, as_json: Json = False) -> None:
    """List the ids of the keys, the one that signs first. Secrets are not shown."""
    keys = _read(file)
    if as_json:
        print_json({"signs": keys.first.id, "keys": list(keys.ids)})
    else:
        print_lines(*(f"{key_id}  {'verifies' if n else 'signs'}" for n, key_id in enumerate(keys.ids)))


def _read(file: Path) -> "PeerKeys":
    from filer.regular_file import read_regular_file
    from mq.base.private_file import refuse_if_open
    from mq.peer_keys.peer_keys import MOST_BYTES, parse_peer_keys

    data = read_regular_file(file, MOST_BYTES + 1)
    try:
        keys = parse_peer_keys(data)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from error
    refuse_if_open(file)
    return keys


def _write(file: Path, keys: "PeerKeys") -> None:
    from mq.security.written_files import write_replacing

    # Brokers find one version or the other: each of them works with each of the steps before and behind it.
    write_replacing(file, keys.text(), mode=0o600, clock=SystemClock())


def _tell(keys: "PeerKeys", what: str, as_json: bool) -> None:
    if as_json:
        print_json({"signs": keys.first.id, "keys": list(keys.ids)})
    else:
        print_lines(what)
