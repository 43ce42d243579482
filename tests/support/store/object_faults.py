"""Damage to single objects of a store, done from outside while brokers use it or not.

    objects = DirectoryObjects(root)            # or S3Objects(endpoint, bucket, prefix)
    past = Past(objects); past.remember()       # from time to time, for older versions
    damage = strike(objects, key, "flip", chance, past)
    ...
    put_back(objects, damage)

Nothing here goes through the product's own stores: a disk that rots asks nobody.
"""

import contextlib
import fcntl
import os
import random
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from filer import keys
from filer.keys import FileName
from filer.stores.local.object_folder import LOCK_FOLDER, LOCK_STRIPES

Manner = Literal["delete", "truncate", "flip", "older"]
Kind = Literal[
    "segment file",
    "roll-up",
    "seal",
    "snapshot",
    "topic.json",
    "version mark",
    "history",
    "cluster.json",
    "settings.json",
    "payload",
]
MANNERS: tuple[Manner, ...] = get_args(Manner)
KINDS: tuple[Kind, ...] = get_args(Kind)
CHANGING: tuple[Kind, ...] = ("snapshot", "topic.json")
"""Only these have older versions of themselves: all others never change once they are written."""
OF_THE_CLUSTER = (keys.CLUSTER, keys.CLUSTER_SETTINGS, keys.CLUSTER_SETTINGS_COPY)
"""The last two have the same content, and are of one kind."""
SEALED_MARK = b"braidmq.sealed"


class Objects(Protocol):
    """The objects of a store by key, as whoever runs the store can reach them."""

    def names(self, prefix: str = "") -> list[str]:
        """All keys that begin with `prefix`, a folder or nothing, sorted."""
        ...

    def read(self, key: str) -> bytes | None:
        """The object; None if there is none."""
        ...

    def change(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        """Make the object `after` (None removes it) if it still is `before`, with what a store notes beside it kept.

        False if it is another one by now.
        """
        ...


class DirectoryObjects:
    """The files of a local store. Times of change stay, as they do where a disk rots."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._times_ns: dict[str, tuple[int, int]] = {}

    def names(self, prefix: str = "") -> list[str]:
        """As `Objects.names`."""
        found = (path.relative_to(self.root) for path in (self.root / prefix).rglob("*") if path.is_file())
        return sorted(str(path) for path in found if not any(part.startswith(".") for part in path.parts))

    def read(self, key: str) -> bytes | None:
        """As `Objects.read`."""
        try:
            return (self.root / key).read_bytes()
        except FileNotFoundError:
            return None

    def change(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        """As `Objects.change`, under the lock by which brokers replace objects."""
        path = self.root / key
        with self._locked(key):
            if self.read(key) != before:
                return False
            if before is not None:
                status = path.stat()
                self._times_ns.setdefault(key, (status.st_atime_ns, status.st_mtime_ns))
            if after is None:
                path.unlink()
                return True
            temp = self.root / ".tmp" / f"damage-{os.getpid()}-{zlib.crc32(key.encode())}"
            temp.parent.mkdir(exist_ok=True)
            temp.write_bytes(after)
            if key in self._times_ns:
                os.utime(temp, ns=self._times_ns[key])
            # Deleting the last file of a folder leaves the folder.
            path.parent.mkdir(parents=True, exist_ok=True)
            temp.replace(path)
            return True

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        stripe = self.root / LOCK_FOLDER / f"{zlib.crc32(key.encode()) % LOCK_STRIPES:02x}"
        stripe.parent.mkdir(exist_ok=True)
        with stripe.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class S3Objects:
    """The objects below a prefix of a bucket. `client` is boto3's."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client, self._bucket, self._prefix = client, bucket, f"{prefix}/"
        self._notes: dict[str, dict[str, str]] = {}

    def names(self, prefix: str = "") -> list[str]:
        """As `Objects.names`."""
        below = self._prefix + prefix
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=below)
        return sorted(each["Key"].removeprefix(self._prefix) for page in pages for each in page.get("Contents", ()))

    def read(self, key: str) -> bytes | None:
        """As `Objects.read`."""
        fetched = self._fetch(key)
        return None if fetched is None else fetched[0]

    def change(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        """As `Objects.change`, by the same conditions by which brokers write."""
        fetched = self._fetch(key)
        if (None if fetched is None else fetched[0]) != before:
            return False
        if fetched is not None:
            self._notes.setdefault(key, fetched[1])
        name = {"Bucket": self._bucket, "Key": self._prefix + key}
        if after is None:
            self._client.delete_object(**name)
            return True
        unchanged = {"IfNoneMatch": "*"} if fetched is None else {"IfMatch": fetched[2]}
        try:
            self._client.put_object(**name, **unchanged, Body=after, Metadata=self._notes.get(key, {}))
        except self._client.exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 412:
                return False
            raise
        return True

    def _fetch(self, key: str) -> tuple[bytes, dict[str, str], str] | None:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
        except self._client.exceptions.NoSuchKey:
            return None
        return answer["Body"].read(), answer["Metadata"], answer["ETag"]


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done to an object, and what it was before and after that (None: nothing)."""

    kind: Kind
    manner: Manner
    key: str
    before: bytes
    after: bytes | None
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.manner} {self.kind} {self.key}{f' ({self.detail})' if self.detail else ''}"


class Past:
    """Versions that objects, of one topic or of all, had when `remember` was called."""

    def __init__(self, objects: Objects, topic: str | None = None) -> None:
        self._objects, self._topic = objects, topic
        self._versions: dict[str, list[bytes]] = defaultdict(list)

    def remember(self) -> None:
        """Look at all objects that change."""
        for key in self._objects.names("" if self._topic is None else keys.topic_folder(self._topic)):
            if kind_by_name(key) in CHANGING:
                data = self._objects.read(key)
                if data is not None and data not in self._versions[key]:
                    self._versions[key].append(data)

    def older(self, key: str, now: bytes) -> list[bytes]:
        """What the object was before it became what it is now, oldest first."""
        versions = self._versions.get(key, [])
        return versions[: versions.index(now)] if now in versions else list(versions)


def kind_by_name(key: str) -> Kind | None:
    """The kind of an object; a seal counts as a segment file. None for probes and temporary files."""
    if key in OF_THE_CLUSTER:
        return "cluster.json" if key == keys.CLUSTER else "settings.json"
    parts = key.split("/")
    if parts[0] != "topics" or len(parts) < 3:
        return None
    if parts[2] == "topic.json":
        return "topic.json"
    if parts[2] == "history":
        return "history"
    if parts[2] == "versions":
        return "version mark"
    if parts[2] == "index":
        return "snapshot"
    if parts[2] == "uploads":
        return "payload"
    name = FileName.parse(key) if parts[2] == "segments" else None
    if name is None:
        return None
    return "roll-up" if name.rolled else "segment file"


def kind_of(key: str, data: bytes) -> Kind | None:
    """The kind of an object with this content."""
    kind = kind_by_name(key)
    return "seal" if kind == "segment file" and SEALED_MARK in data else kind


def by_kind(objects: Objects, topic: str) -> dict[Kind, list[str]]:
    """The objects of a topic, and of the cluster, by kind."""
    found: dict[Kind, list[str]] = defaultdict(list)
    for key in objects.names():
        if key in OF_THE_CLUSTER or key.startswith(keys.topic_folder(topic)):
            data = objects.read(key)
            kind = None if data is None else kind_of(key, data)
            if kind is not None:
                found[kind].append(key)
    return found


def manners_of(kind: Kind) -> Sequence[Manner]:
    """The ways in which an object of this kind can be damaged."""
    if kind == "version mark":
        return ("delete",)  # it is empty
    return MANNERS if kind in CHANGING else [each for each in MANNERS if each != "older"]


def strike(objects: Objects, key: str, manner: Manner, chance: random.Random, past: Past) -> Damage | None:
    """Damage an object; None if it has gone or changed meanwhile, or has no older version."""
    before = objects.read(key)
    kind = None if before is None else kind_of(key, before)
    if before is None or kind is None:
        return None
    after, detail = damaged(before, manner, chance, past.older(key, before))
    if after == before or not objects.change(key, before, after):
        return None
    return Damage(kind, manner, key, before, after, detail)


def damaged(
    data: bytes, manner: Manner, chance: random.Random, older: Sequence[bytes] = ()
) -> tuple[bytes | None, str]:
    """The bytes after the damage (None: nothing is left), and what was done."""
    if manner == "delete":
        return None, ""
    if manner == "truncate":
        length = chance.randrange(len(data)) if data else 0
        return data[:length], f"{length} of {len(data)} bytes are left"
    if manner == "flip":
        bit = chance.randrange(8 * len(data)) if data else 0
        return flipped(data, bit), f"bit {bit % 8} of byte {bit // 8} of {len(data)}"
    if not older:
        return data, "it has no older version"
    number = chance.randrange(len(older))
    return older[number], f"version {number + 1} of {len(older) + 1}"


def flipped(data: bytes, bit: int) -> bytes:
    """The data with one bit flipped."""
    changed = bytearray(data)
    if changed:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def put_back(objects: Objects, damage: Damage) -> bool:
    """Put the object back as it was; False if somebody has written another one since."""
    return objects.change(damage.key, damage.after, damage.before)
