"""cluster.json and settings.json: which cluster this store belongs to, and what all its brokers must agree on.

cluster.json is written once by the first broker that starts on the store. settings.json, beside it, has all of
cluster.json again, a check over that, and `grace_seconds`. It is an object of its own because brokers of versions
before refuse a cluster.json with a member that they do not know, and they may be started during an upgrade; of
settings.json they know nothing. Each of the two shows damage to the other, and the next broker that starts writes the
missing one again from the one that is there.

A broker that cannot know its cluster must not start: with another id and another secret it would run a second cluster
over the same files. So this is the one record whose damage keeps brokers from starting.
"""

import base64
import contextlib

from pydantic import BaseModel, ConfigDict

from filer import keys
from filer.clock import Clock
from filer.errors import CorruptFile, DataMissing, InvalidConfig, ObjectExists, ObjectNotFound
from filer.stores.store import Store
from filer.topic.record_check import checked, with_check

FORMAT_VERSION = 1
_SECRET_BYTES = 32


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
    """settings.json: the content of cluster.json, and what all brokers of the cluster must agree on."""

    model_config = ConfigDict(frozen=True, extra="allow")

    cluster: ClusterRecord
    grace_seconds: float


async def open_cluster(store: Store, clock: Clock, name: str, *, grace_seconds: float) -> ClusterRecord:
    """The store's cluster record; both records are written if there are none.

    Raises `InvalidConfig` if the cluster has another grace period. Raises `CorruptFile` for a store of another format
    or of another cluster, and for a damaged record, and `DataMissing` if there are topics but no record. Two brokers
    that start at once agree: only one create of each object succeeds, and both read it. It is safe to stop anywhere: no
    object changes once it is there, and the next start creates what is missing.
    """
    record, settings = await _read_record(store), await _read_settings(store)
    if record is None:
        record = await _create_record(store, settings.cluster if settings else await _fresh(store, clock, name))
    if settings is None:
        settings = await _create_settings(store, ClusterSettings(cluster=record, grace_seconds=grace_seconds))
    _check_same(record, settings)
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


async def check_cluster(store: Store) -> None:
    """Check both records, as far as they are there. Raises `CorruptFile`, and `DataMissing` if cluster.json is gone."""
    record, settings = await _read_record(store), await _read_settings(store)
    if record is None:
        raise DataMissing(f"{keys.CLUSTER} is gone", key=keys.CLUSTER)
    if settings is not None:
        _check_same(record, settings)


def _check_same(record: ClusterRecord, settings: ClusterSettings) -> None:
    if settings.cluster != record:
        raise CorruptFile(
            f"{keys.CLUSTER} and {keys.CLUSTER_SETTINGS} name different clusters: one of them is damaged or of another "
            "store; put back the right one (docs/operations.md, Damaged and missing records)",
            key=keys.CLUSTER,
        )


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
        await store.create(keys.CLUSTER, record.model_dump_json().encode())
    return await _read_record(store) or record


async def _create_settings(store: Store, settings: ClusterSettings) -> ClusterSettings:
    """As `_create_record`."""
    with contextlib.suppress(ObjectExists):
        await store.create(keys.CLUSTER_SETTINGS, with_check(settings.model_dump_json(indent=1).encode()))
    return await _read_settings(store) or settings


async def _read_record(store: Store) -> ClusterRecord | None:
    try:
        data = (await store.get(keys.CLUSTER)).data
    except ObjectNotFound:
        return None
    try:
        record = ClusterRecord.model_validate_json(data)
    except ValueError as error:
        raise CorruptFile(
            f"{keys.CLUSTER} cannot be read: put it back, or delete it if {keys.CLUSTER_SETTINGS} is there, from which "
            f"the next broker writes it again ({_first_line(error)})",
            key=keys.CLUSTER,
        ) from error
    _check_format(record)
    return record


async def _read_settings(store: Store) -> ClusterSettings | None:
    key = keys.CLUSTER_SETTINGS
    try:
        data = (await store.get(key)).data
    except ObjectNotFound:
        return None
    try:
        settings = ClusterSettings.model_validate(checked(data, key=key, first="cluster")[0])
    except (CorruptFile, ValueError) as error:
        raise CorruptFile(
            f"{key} cannot be read: put it back, or delete it if all brokers have the same --grace, which the next "
            f"broker then writes ({_first_line(error)})",
            key=key,
        ) from error
    _check_format(settings.cluster)
    return settings


def _check_format(record: ClusterRecord) -> None:
    if record.format != FORMAT_VERSION:
        raise CorruptFile(f"the store is of format {record.format}; this version reads format {FORMAT_VERSION}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
