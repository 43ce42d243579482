"""The files with which a local cluster trusts no client: in a folder of their own, beside the store and never in it.

    ca.key              the CA, with its key; signs the certificates below
    ca.pem              its certificate, for clients
    broker.pem          key and certificate of the brokers, zookeeper.pem those of ZooKeeper
    signing-keys.json   the cluster's own token keys; public-keys.json is what brokers need of them
    peer-keys           by which brokers prove their identity to each other
    zookeeper-auth      name and password, by which brokers prove themselves to ZooKeeper
    admin.token         the administrator's token; admin.header is the same as a header, for curl

Files that are there and good are used again. A file that follows from another one is written anew from it, so a start
that was stopped halfway is finished by the next one.
"""

import json
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from filer.clock import Clock
from filer.errors import InvalidInput
from filer.regular_file import read_regular_file
from mq.base.errors import Unauthenticated
from mq.base.private_file import refuse_if_open
from mq.local.secure.authority import (
    CA_DAYS_LEFT,
    CERTIFICATE_DAYS_LEFT,
    Identity,
    is_due,
    is_from_the_future,
    is_signed_by,
    moment,
    new_authority,
    new_identity,
    parse_identity,
)
from mq.local.secure.own_files import refuse_if_not_own
from mq.peer_keys.peer_keys import new_peer_keys, parse_peer_keys
from mq.security.grants import parse_grants
from mq.security.key_ring import KeyRing, parse_key_set
from mq.security.signed_tokens import OWN_ISSUER, Audience, unverified, verify
from mq.security.signing_keys import SigningKeys, read_signing_keys
from mq.security.written_files import delete_unfinished, write_replacing

FOLDER, TOKEN_FILE = "secure", "admin.token"
ADMINISTRATOR = "admin"
GRANTS = ("topic:*:*", "topic:__audit:read", "cluster:*")
TOKEN_DAYS, TOKEN_DAYS_LEFT = 90, 30
_DAY_SECONDS = 86_400
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_MOST_BYTES = 256 * 1024
_PASSWORD_BYTES = 24
T = TypeVar("T")


class SecureFolder:
    """The secrets of one local cluster with the name `cluster`. Call `prepare` before anything starts.

    `tell` gets a line about the settings of programs that trust the CA.
    """

    def __init__(
        self, folder: Path, cluster: str, clock: Clock, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self.folder, self._cluster, self._clock, self._tell = folder, cluster, clock, tell
        self.ca = folder / "ca.pem"
        self.broker, self.zookeeper = folder / "broker.pem", folder / "zookeeper.pem"
        self.signing_keys, self.public_keys = folder / "signing-keys.json", folder / "public-keys.json"
        self.peer_keys, self.zookeeper_auth = folder / "peer-keys", folder / "zookeeper-auth"
        self.token, self.header = folder / TOKEN_FILE, folder / "admin.header"
        self._authority = folder / "ca.key"

    def prepare(self) -> list[str]:
        """Create what is missing or about to end. Returns the names of the new files.

        Raises `InvalidInput` for a file that cannot be used and is not created anew, because others rely on its
        content, and for a file that another user has placed or may change. Only for the holder of the lock on the
        cluster's folder.
        """
        self._open_folder()
        authority, made = self._prepared_authority()
        self._follow(self.ca, authority.certificate_pem())
        made += self._renew(authority)
        made += self._kept(self.peer_keys, parse_peer_keys, partial(new_peer_keys, self._clock))
        return made + self._kept(self.zookeeper_auth, _check_credentials, self._new_credentials)

    def renew(self) -> list[str]:
        """Renew certificates and the token that are about to end, while the cluster runs.

        Returns the names of the new files. The CA stays: its users have read it already.
        """
        return self._renew(self._read_authority())

    def _renew(self, authority: Identity) -> list[str]:
        now, made = self._now(), []
        for path in (self.broker, self.zookeeper):
            if not self._is_good(path, authority, now):
                # One file, so that a reader never gets a key of another certificate.
                self._write(path, new_identity(authority, path.stem, now).pem())
                made.append(path.name)
        return made + self._prepared_token()

    def _open_folder(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        # The folder first: once no other user may write to it, no other user changes the files that the lines below
        # check.
        for path in (self.folder, *sorted(self.folder.iterdir())):
            refuse_if_not_own(path)
        secrets = [self._authority, self.broker, self.zookeeper, self.signing_keys, self.peer_keys]
        secrets += [self.zookeeper_auth, self.token, self.header]
        for path in (self.folder, *secrets):
            refuse_if_open(path)
        # No program reads them. If a start is killed at this line, the next one deletes the rest.
        for path in (*secrets, self.ca, self.public_keys, self.folder / ".gitignore"):
            delete_unfinished(path)
        # If the data lies in a repository, none of it is ever committed.
        self._follow(self.folder / ".gitignore", "*\n")

    def _prepared_authority(self) -> tuple[Identity, list[str]]:
        now = self._now()
        if self._authority.exists():
            found = self._read_authority()
            if not is_due(found, now, days_left=CA_DAYS_LEFT):
                return found, []
            self._tell(
                f"{self._authority} ends at {found.until:{_TIME}}, and a new CA takes its place: "
                f"whoever trusts the one before needs {self.ca} again"
            )
        made = new_authority(now)
        self._write(self._authority, made.pem())
        return made, [self._authority.name]

    def _read_authority(self) -> Identity:
        found, now = _usable(self._authority, lambda: parse_identity(self._read(self._authority))), self._now()
        # More likely the clock is wrong than the CA. A replaced CA is lost, with all trust in it.
        if is_from_the_future(found, now):
            raise InvalidInput(
                f"{self._authority} is from the future: it begins at {found.certificate.not_valid_before_utc:{_TIME}}, "
                f"and this machine's clock says {now:{_TIME}}; "
                "set the clock right, or delete the file, and it is made anew"
            )
        return found

    def _now(self) -> datetime:
        return moment(self._clock.now_us())

    def _is_good(self, path: Path, authority: Identity, now: datetime) -> bool:
        if not path.exists():
            return False
        try:
            found = parse_identity(self._read(path))
        except InvalidInput:
            return False  # programs rely on it only by its CA
        return is_signed_by(found, authority) and not is_due(found, now, days_left=CERTIFICATE_DAYS_LEFT)

    def _prepared_token(self) -> list[str]:
        """Prepare a token of the administrator that brokers accept, and the keys for that."""
        made = []
        if not self.signing_keys.exists():
            keys = SigningKeys(()).rotated(self._clock, 0)
            self._write(self.signing_keys, _json({"keys": list(keys.keys)}))
            made.append(self.signing_keys.name)
        keys = _usable(self.signing_keys, lambda: read_signing_keys(self.signing_keys))
        # Before a token is signed with one of them: brokers that run take them within a second.
        self._follow(self.public_keys, _json(keys.public()))
        if not self._has_good_token(keys):
            seconds = TOKEN_DAYS * _DAY_SECONDS
            token, _ = keys.sign(
                ADMINISTRATOR, parse_grants(GRANTS), audience=self._cluster, ttl_seconds=seconds, clock=self._clock
            )
            self._write(self.token, f"{token}\n")
            made.append(self.token.name)
        self._follow(self.header, f"Authorization: Bearer {self._read(self.token).decode().strip()}\n")
        return made

    def _has_good_token(self, keys: SigningKeys) -> bool:
        if not self.token.exists():
            return False
        now_seconds = self._clock.now_us() / 1e6
        text = self._read(self.token).decode("utf-8", "replace").strip()
        ring = KeyRing(parse_key_set(json.dumps(keys.public()).encode(), OWN_ISSUER, strict=True))
        try:
            verify(text, ring, Audience(self._cluster, {}), now_seconds)
            _, claims = unverified(text)
        except Unauthenticated:
            return False
        return now_seconds < float(claims["exp"]) - TOKEN_DAYS_LEFT * _DAY_SECONDS

    def _kept(self, path: Path, check: Callable[[bytes], object], make: Callable[[], str]) -> list[str]:
        """Keep a secret as it is once it is made."""
        is_missing = not path.exists()
        if is_missing:
            self._write(path, make())
        _usable(path, lambda: check(self._read(path)))
        return [path.name] if is_missing else []

    def _new_credentials(self) -> str:
        return f"braidmq:{self._clock.entropy(_PASSWORD_BYTES).hex()}\n"

    def _follow(self, path: Path, text: str) -> None:
        """Write a file that follows from another one."""
        if not path.exists() or self._read(path) != text.encode():
            self._write(path, text)

    def _read(self, path: Path) -> bytes:
        return read_regular_file(path, _MOST_BYTES)

    def _write(self, path: Path, text: str) -> None:
        write_replacing(path, text, mode=0o600, clock=self._clock)


def _json(document: dict[str, object]) -> str:
    return f"{json.dumps(document, indent=2)}\n"


def _usable(path: Path, read: Callable[[], T]) -> T:
    """Return the content of a file. Raises `InvalidInput`, which names the file and the remedy."""
    try:
        return read()
    except InvalidInput as error:
        raise InvalidInput(
            f"{path} cannot be used: {error}; put back what it had, or delete it, and it is made anew"
        ) from error


def _check_credentials(data: bytes) -> None:
    if not data.startswith(b"braidmq:") or len(data.split()) != 1:
        raise InvalidInput("it is no line of the form name:password")
