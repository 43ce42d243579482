"""The keys by which brokers sign their calls to each other, and their file: a line for each, an id and a secret.

The first key signs; all of them verify. So keys are replaced without a stop: the new one comes second everywhere, then
first, and then the old one goes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from filer.clock import Clock
from filer.errors import InvalidInput

SECRET_BYTES = 32
MOST_KEYS = 20
MOST_BYTES = 8192
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SECRET = re.compile(rf"[0-9a-f]{{{2 * SECRET_BYTES}}}")


@dataclass(frozen=True, slots=True)
class PeerKey:
    """One key. No text made from it contains its secret."""

    id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PeerKeys:
    """Keys; the first one signs."""

    keys: tuple[PeerKey, ...]

    @property
    def first(self) -> PeerKey:
        """The key that signs."""
        return self.keys[0]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, with that of the signing key first."""
        return tuple(key.id for key in self.keys)

    def find(self, key_id: str) -> PeerKey | None:
        """Return the key of that id."""
        return next((key for key in self.keys if key.id == key_id), None)

    def text(self) -> str:
        """Return the text of the file."""
        return "".join(f"{key.id} {key.secret.hex()}\n" for key in self.keys)


def new_key(clock: Clock) -> PeerKey:
    """Return a new key."""
    return PeerKey(clock.ulid(), clock.entropy(SECRET_BYTES))


def new_peer_keys(clock: Clock) -> str:
    """Return the text of a file of keys with a new one in it."""
    return PeerKeys((new_key(clock),)).text()


def parse_peer_keys(data: bytes) -> PeerKeys:
    """Parse the keys in a file or a variable. Raises `InvalidInput`, which repeats nothing of a secret."""
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"it has more than {MOST_BYTES} bytes: that is no file of peer keys")
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInput("it is no text of peer keys: mq peer-keys add makes such a file") from error
    keys = [_key(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    if not keys:
        raise InvalidInput("it has no key: mq peer-keys add makes one")
    if len(keys) > MOST_KEYS:
        raise InvalidInput(f"it has {len(keys)} keys: {MOST_KEYS} are the most")
    _refuse_twice([key.id for key in keys])
    return PeerKeys(tuple(keys))


def _key(number: int, line: str) -> PeerKey:
    words = line.split()
    if len(words) != 2 or not _ID.fullmatch(words[0]) or not _SECRET.fullmatch(words[1]):
        raise InvalidInput(
            f"line {number} is not an id and a secret of {2 * SECRET_BYTES} hexadecimal digits, with a space in between"
        )
    return PeerKey(words[0], bytes.fromhex(words[1]))


def _refuse_twice(ids: Sequence[str]) -> None:
    if twice := [each for each in dict.fromkeys(ids) if ids.count(each) > 1]:
        raise InvalidInput(f"two keys have the id {twice[0]!r}")
