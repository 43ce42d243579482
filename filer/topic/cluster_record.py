"""cluster.json: which cluster this store belongs to, written once by the first broker that starts on it."""

import base64
import contextlib

from pydantic import BaseModel, ConfigDict

from filer import keys
from filer.clock import Clock
from filer.errors import CorruptFile, ObjectExists, ObjectNotFound
from filer.stores.store import Store

FORMAT_VERSION = 1


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


async def open_cluster(store: Store, clock: Clock, name: str) -> ClusterRecord:
    """The store's cluster record, created if there is none.

    Raises `CorruptFile` for a store of another format or of another cluster. Two brokers that start at once agree:
    only one create succeeds, and both read its record.
    """
    try:
        record = _parse((await store.get(keys.CLUSTER)).data)
    except ObjectNotFound:
        secret = base64.b64encode(clock.entropy(32)).decode()
        fresh = ClusterRecord(format=FORMAT_VERSION, cluster=name, id=clock.ulid(), upload_secret=secret)
        with contextlib.suppress(ObjectExists):
            await store.create(keys.CLUSTER, fresh.model_dump_json().encode())
        record = _parse((await store.get(keys.CLUSTER)).data)
    if record.cluster != name:
        raise CorruptFile(
            f"this store belongs to cluster {record.cluster!r}, not {name!r}: "
            f"pass --cluster {record.cluster} or another prefix"
        )
    return record


def _parse(data: bytes) -> ClusterRecord:
    try:
        record = ClusterRecord.model_validate_json(data)
    except ValueError as error:
        raise CorruptFile(f"{keys.CLUSTER} cannot be read: {error}") from error
    if record.format != FORMAT_VERSION:
        raise CorruptFile(f"the store is of format {record.format}; this version reads format {FORMAT_VERSION}")
    return record
