"""Payloads submitted by reference: ids that only a broker can issue, and the check of the references in messages.

An id contains the declared size and SHA-256 and a MAC over them, so that brokers keep no state about uploads:
`<ulid>.<size>.<sha256 or nothing>.<mac>`, hashes in URL-safe base64 without padding.
"""

import base64
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ulid import ULID

from filer import keys
from filer.clock import Clock
from filer.errors import InvalidInput, ObjectNotFound, Remedy
from filer.stores.store import Store

EXPIRES_SECONDS = 86_400
_ID = re.compile(r"([0-9A-HJKMNP-TV-Z]{26})\.([0-9]{1,16})\.([A-Za-z0-9_-]{43})?\.([A-Za-z0-9_-]{22})\Z")


@dataclass(frozen=True, slots=True)
class Upload:
    """An issued upload: its id, and the declared size and SHA-256 of its payload."""

    id: str
    size_bytes: int
    sha256: str | None
    issued_us: int

    @property
    def expires_us(self) -> int:
        """The time until which it may be written and referred to."""
        return self.issued_us + EXPIRES_SECONDS * 1_000_000


@dataclass(frozen=True, slots=True)
class Claim:
    """What a publisher claims about the upload that a message refers to."""

    upload: str
    size_bytes: int | None = None
    etag: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """What the log stores about a payload. It is fixed when the message is published, and readers check it."""

    uri: str
    size_bytes: int
    etag: str
    sha256: str | None

    def to_row(self) -> dict[str, str | int | None]:
        """As a value of the `_ref` column."""
        return {"uri": self.uri, "size": self.size_bytes, "etag": self.etag, "sha256": self.sha256}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Reference":
        """The reference from a value of the `_ref` column."""
        return cls(row["uri"], row["size"], row["etag"], row["sha256"])

    def key(self, topic: str) -> str:
        """The store key of the payload."""
        return keys.topic_folder(topic) + self.uri


class Uploads:
    """Issues the uploads of one cluster and checks references to them.

    `topic` has the payload on the store. Of a topic group that is the group, and `member` is the topic that the upload
    is for. An upload of one member is refused to all others, since a publisher to one may not see what others have.
    """

    def __init__(self, store: Store, clock: Clock, secret: bytes) -> None:
        self._store, self._clock, self._secret = store, clock, secret

    def issue(self, topic: str, size_bytes: int, sha256: str | None, *, member: str | None = None) -> Upload:
        """A new upload id for a payload of that size (and SHA-256, as lower-case hex)."""
        ulid = self._clock.ulid()
        digest = _encode(bytes.fromhex(sha256)) if sha256 else ""
        mac = self._mac(topic, member, ulid, str(size_bytes), digest)
        return self.parse(topic, f"{ulid}.{size_bytes}.{digest}.{mac}", member=member)

    def parse(self, topic: str, upload_id: str, *, member: str | None = None) -> Upload:
        """What was declared when the id was issued. Raises `InvalidInput` if it was not issued for this topic."""
        match = _ID.match(upload_id)
        if match is None or not hmac.compare_digest(
            match[4], self._mac(topic, member, match[1], match[2], match[3] or "")
        ):
            name = topic if member is None else member
            raise InvalidInput(
                f"{upload_id[:160]!r} was not issued for topic {name!r}", Remedy("get-upload-id", topic=name)
            )
        sha256 = base64.urlsafe_b64decode(match[3] + "=").hex() if match[3] else None
        return Upload(upload_id, int(match[2]), sha256, int(ULID.from_str(match[1]).milliseconds) * 1000)

    def _mac(self, topic: str, member: str | None, ulid: str, size: str, digest: str) -> str:
        parts = (topic, ulid, size, digest, *(() if member is None else (member,)))
        message = "\0".join(parts).encode()
        return _encode(hmac.digest(self._secret, message, "sha256")[:16])

    async def verify(self, topic: str, claim: Claim, *, member: str | None = None) -> Reference:
        """Check a claim against the stored object; returns what the log stores about it.

        An upload can be referred to for a day. The sweep that deletes unreferenced uploads waits longer than that, so
        an object that is verified here still exists when the message is stored. Raises `InvalidInput`.
        """
        upload = self.parse(topic, claim.upload, member=member)
        self._check_fresh(upload)
        try:
            info = await self._store.head(keys.upload(topic, upload.id))
            # Again, by the time of the store's answer: the sweep goes by that, whatever the clock here shows.
            self._check_fresh(upload)
        except ObjectNotFound as error:
            raise InvalidInput(f"upload {upload.id!r} has not arrived: put the payload to its URL first") from error
        _match("size", info.size_bytes, upload.size_bytes, "declared for the upload")
        _match("size", info.size_bytes, claim.size_bytes, "given in the reference")
        _match("etag", info.etag, claim.etag, "given in the reference")
        _match("sha256", upload.sha256, claim.sha256, "given in the reference")
        return Reference(f"uploads/{upload.id}", info.size_bytes, info.etag, upload.sha256)

    def _check_fresh(self, upload: Upload) -> None:
        if max(self._clock.now_us(), self._store.time.latest_us) > upload.expires_us:
            raise InvalidInput(
                f"upload {upload.id!r} has expired: a message can refer to an upload for a day; upload it again"
            )


def _match(what: str, found: object, said: object, where: str) -> None:
    if said is not None and found != said:
        raise InvalidInput(f"the upload's {what} is {found}, not {said} as {where}")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
