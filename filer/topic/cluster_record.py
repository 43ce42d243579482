"""cluster.json and settings.json: which cluster this store belongs to, and the settings that its brokers share.

cluster.json is written once by the first broker that starts on the store. settings.json, beside it, has all of
cluster.json again, a check over that, and `grace_seconds`. It is an object of its own because brokers of earlier
versions refuse a cluster.json with a member that they do not know, and they may be started during an upgrade; they
ignore settings.json. settings-copy.json has the same content as settings.json.

So damage to one of the three keeps no broker from starting. The two with a check vouch for themselves and for
cluster.json, and the next broker that starts writes what is missing or damaged again. That is safe wherever it stops:
none of the three ever changes, so there is nothing else that could be written, and it is written only over the bytes
that were found damaged.

A broker that cannot know its cluster must not start: with another id and another secret it would run a second cluster
over the same files. That takes damage to two of them at once.
"""

import base64
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from filer import keys
from filer.clock import Clock
from filer.errors import (
    CorruptFile,
    DataMissing,
    EtagMismatch,
    InvalidConfig,
    ObjectExists,
    ObjectNotFound,
    OutcomeUnknown,
)
from filer.event_log import EventLog
from filer.stores.store import Store
from filer.topic.record_check import checked, with_check

FORMAT_VERSION = 1
_SECRET_BYTES = 32
T = TypeVar("T")

_log = EventLog(__name__)


class ClusterRecord(BaseModel):
    """The format of everything on the store, the cluster's id, and the secret that signs upload ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    cluster: str
    id: str
    upload_secret: str

    @property
    def secret(self) -> bytes:
        """The signing secret as bytes."""
        return base64.b64decode(self.upload_secret)


class ClusterSettings(BaseModel):
    """settings.json: the content of cluster.json, and the settings on which all brokers of the cluster must agree."""

    model_config = ConfigDict(frozen=True, extra="allow")

    cluster: ClusterRecord
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class _Found(Generic[T]):
    """What the store has under a key: a value, or bytes that are damaged; neither, if there is no such object."""

    key: str
    value: T | None = None
    etag: str = ""
    damage: CorruptFile | None = None


@dataclass(frozen=True, slots=True)
class _Records:
    """All three records as they were found."""

    record: _Found[ClusterRecord]
    settings: _Found[ClusterSettings]
    copy: _Found[ClusterSettings]

    @property
    def sound(self) -> ClusterSettings | None:
        """The settings that fit their check. Raises `CorruptFile` if the two differ, or if one is damaged and alone."""
        first, second = self.settings.value, self.copy.value
        if first is not None and second is not None and first != second:
            raise CorruptFile(
                f"{self.settings.key} and {self.copy.key} differ: delete the wrong one (docs/operations.md, Damaged "
                "and missing records)",
                key=self.settings.key,
            )
        damage = self.settings.damage or self.copy.damage
        if first is None and second is None and damage is not None:
            raise damage
        return first or second

    @property
    def known(self) -> ClusterRecord | None:
        """The cluster that they name; None if none of them is there. Raises `CorruptFile` if that cannot be known."""
        sound, record = self.sound, self.record.value
        if sound is None:
            if self.record.damage is not None:
                raise self.record.damage
            return record
        if record is not None and record.id != sound.cluster.id and record.upload_secret != sound.cluster.upload_secret:
            # Damage to one place leaves one of these two as it was. Records of another cluster have neither.
            raise CorruptFile(
                f"{keys.CLUSTER} and {keys.CLUSTER_SETTINGS} name different clusters: one of them is of another "
                "store; put back the right one (docs/operations.md, Damaged and missing records)",
                key=keys.CLUSTER,
            )
        return sound.cluster


async def open_cluster(store: Store, clock: Clock, name: str, *, grace_seconds: float) -> ClusterRecord:
    """The store's cluster record. Writes those of the three objects that are missing or damaged.

    Raises `InvalidConfig` if the cluster has another grace period. Raises `CorruptFile` for a store of another format
    or of another cluster, or if damage does not let the cluster be known, and `DataMissing` if there are topics but no
    record. Two brokers that start at once agree: only one create of each object succeeds, and both read it. It is safe
    to stop anywhere: no object changes once it is there, and the next start creates what is missing.
    """
    found = await _read_all(store)
    record, settings = found.known, found.sound
    if record is not None:
        # A store of another format is left as it is.
        _check_format(record)
    if found.record.value is None and found.record.damage is None:
        record = await _create_record(store, record or await _fresh(store, clock, name))
    assert record is not None
    if settings is None:
        wanted = ClusterSettings(cluster=record, grace_seconds=grace_seconds)
        settings = await _create_settings(store, keys.CLUSTER_SETTINGS, wanted)
        if settings.cluster != record:
            raise CorruptFile(f"{keys.CLUSTER_SETTINGS} was written for another cluster meanwhile", key=keys.CLUSTER)
    await _complete(store, found, settings)
    if record.cluster != name:
        raise CorruptFile(
            f"this store belongs to cluster {record.cluster!r}, not {name!r}: "
            f"pass --cluster {record.cluster} or another prefix"
        )
    if settings.grace_seconds != grace_seconds:
        raise InvalidConfig(
            f"this broker has --grace {grace_seconds:g}, but cluster {name!r} has {settings.grace_seconds:g}: pass "
            f"--grace {settings.grace_seconds:g} (docs/operations.md, Change the grace period)"
        )
    return record


async def read_grace_seconds(store: Store) -> float:
    """The grace period of the store's cluster. Raises `CorruptFile`, and `DataMissing` if no broker has noted it."""
    settings = (await _read_all(store)).sound
    if settings is None:
        raise DataMissing(
            f"{keys.CLUSTER_SETTINGS} is not there, so the grace period is unknown: a broker that starts writes it",
            key=keys.CLUSTER_SETTINGS,
        )
    return settings.grace_seconds


async def check_cluster(store: Store) -> None:
    """Check those of the three that are there. Raises `CorruptFile`, and `DataMissing` if cluster.json is gone."""
    found = await _read_all(store)
    for each in (found.record, found.settings, found.copy):
        if each.damage is not None:
            raise each.damage
    known, record = found.known, found.record.value
    if record is None:
        raise DataMissing(f"{keys.CLUSTER} is gone", key=keys.CLUSTER)
    if record != known:
        raise CorruptFile(f"{keys.CLUSTER} is damaged: {keys.CLUSTER_SETTINGS} says something else", key=keys.CLUSTER)
    _check_format(record)


async def _complete(store: Store, found: _Records, settings: ClusterSettings) -> None:
    """Write the settings if they are missing, and those of the three that are damaged."""
    for each in (found.settings, found.copy):
        if each.value is None and each.damage is None:
            await _create_settings(store, each.key, settings)
        elif each.damage is not None:
            await _mend(store, each.key, each.etag, _settings_bytes(settings))
    record = found.record
    if record.damage is not None or (record.value is not None and record.value != settings.cluster):
        await _mend(store, record.key, record.etag, _record_bytes(settings.cluster))


async def _mend(store: Store, key: str, etag: str, data: bytes) -> None:
    """Write a damaged record again, unless it has changed meanwhile. If that has no effect, the next start does it."""
    _log.warning("record_mended", key=key)
    with contextlib.suppress(EtagMismatch, ObjectNotFound, OutcomeUnknown):
        await store.replace(key, data, etag=etag)


async def _fresh(store: Store, clock: Clock, name: str) -> ClusterRecord:
    """A record for a store without any. Raises `DataMissing` if the store is in use."""
    if topics := await store.list_folders(keys.TOPICS):
        raise DataMissing(
            f"{keys.CLUSTER} is gone, but the store has topics ({topics[0]!r}, …): put it back, or else write a new "
            "one (docs/operations.md, Damaged and missing records)",
            key=keys.CLUSTER,
        )
    secret = base64.b64encode(clock.entropy(_SECRET_BYTES)).decode()
    return ClusterRecord(format=FORMAT_VERSION, cluster=name, id=clock.ulid(), upload_secret=secret)


async def _create_record(store: Store, record: ClusterRecord) -> ClusterRecord:
    """The record that the store has afterwards: this one, or that of a broker that was faster."""
    with contextlib.suppress(ObjectExists):
        await store.create(keys.CLUSTER, _record_bytes(record))
    return _value_of(await _find(store, keys.CLUSTER, _to_record)) or record


async def _create_settings(store: Store, key: str, settings: ClusterSettings) -> ClusterSettings:
    """As `_create_record`, for the settings or their copy."""
    with contextlib.suppress(ObjectExists):
        await store.create(key, _settings_bytes(settings))
    return _value_of(await _find(store, key, _to_settings)) or settings


def _value_of(found: _Found[T]) -> T | None:
    if found.damage is not None:
        raise found.damage
    return found.value


def _record_bytes(record: ClusterRecord) -> bytes:
    return record.model_dump_json().encode()


def _settings_bytes(settings: ClusterSettings) -> bytes:
    return with_check(settings.model_dump_json(indent=1).encode())


async def _read_all(store: Store) -> _Records:
    return _Records(
        await _find(store, keys.CLUSTER, _to_record),
        await _find(store, keys.CLUSTER_SETTINGS, _to_settings),
        await _find(store, keys.CLUSTER_SETTINGS_COPY, _to_settings),
    )


async def _find(store: Store, key: str, parse: Callable[[str, bytes], T]) -> _Found[T]:
    try:
        fetched = await store.get(key)
    except ObjectNotFound:
        return _Found(key)
    try:
        return _Found(key, parse(key, fetched.data), fetched.info.etag)
    except CorruptFile as error:
        return _Found(key, None, fetched.info.etag, error)


def _to_record(key: str, data: bytes) -> ClusterRecord:
    try:
        return ClusterRecord.model_validate_json(data)
    except ValueError as error:
        raise CorruptFile(
            f"{key} cannot be read: put it back, or delete it if {keys.CLUSTER_SETTINGS} is there, from which "
            f"the next broker writes it again ({_first_line(error)})",
            key=key,
        ) from error


def _to_settings(key: str, data: bytes) -> ClusterSettings:
    try:
        return ClusterSettings.model_validate(checked(data, key=key, first="cluster")[0])
    except (CorruptFile, ValueError) as error:
        raise CorruptFile(
            f"{key} cannot be read: put it back, or delete it if all brokers have the same --grace, which the next "
            f"broker then writes ({_first_line(error)})",
            key=key,
        ) from error


def _check_format(record: ClusterRecord) -> None:
    if record.format != FORMAT_VERSION:
        raise CorruptFile(f"the store is of format {record.format}; this version reads format {FORMAT_VERSION}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
