"""Checks a whole topic on a store, and the records of the cluster. Reads every byte that counts once, and no more."""

from collections.abc import AsyncIterator, Callable

from filer import keys
from filer.errors import BraidError, CorruptFile, DataMissing, ObjectNotFound, UnreadableObject
from filer.segment.segment_log import SegmentRef
from filer.segment.snapshot_format import from_snapshot
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue, read_lineage
from filer.topic.cluster_record import check_cluster
from filer.verification.stored_segment import verify_segment
from filer.verification.verdict import Verdict


async def verify_cluster(store: Store) -> AsyncIterator[Verdict]:
    """A verdict on the three records of the cluster, named by the one that is wrong. Raises `StoreError`."""
    try:
        await check_cluster(store)
    except UnreadableObject as error:
        yield _told(error, keys.CLUSTER)
    else:
        yield Verdict(keys.CLUSTER, "ok")


async def verify_topic(store: Store, catalogue: Catalogue, topic: str) -> AsyncIterator[Verdict]:
    """A verdict on each object of a topic that counts: its record, lineage, snapshots, and segment files.

    Without its record nothing says which segments count, so its files are not looked at. There are none if there never
    was such a topic. Raises `StoreError`.
    """
    try:
        record = await catalogue.read(topic)
    except UnreadableObject as error:
        yield _told(error, keys.topic(topic))
        return
    if record is None:
        return
    yield Verdict(keys.topic(topic), "ok")
    async for verdict in _verify_objects(store, keys.history_folder(topic), read_lineage):
        yield verdict
    async for verdict in _verify_objects(store, keys.snapshots_folder(topic), lambda _, data: from_snapshot(data, 0)):
        yield verdict
    for segment in record.state.segments:
        files = verify_segment(
            store,
            SegmentRef(topic, segment.id),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            seal_offset=segment.seal_offset,
        )
        async for verdict in files:
            yield verdict


async def _verify_objects(store: Store, folder: str, read: Callable[[str, bytes], object]) -> AsyncIterator[Verdict]:
    async for info in store.list(folder):
        try:
            read(info.key, (await store.get(info.key)).data)
        except CorruptFile as error:
            yield _told(error, info.key)
        except ObjectNotFound:
            continue  # deleted since the listing
        else:
            yield Verdict(info.key, "ok")


def _told(error: BraidError, key: str) -> Verdict:
    named = (error.key if isinstance(error, UnreadableObject) else None) or key
    return Verdict(named, "missing" if isinstance(error, DataMissing) else "damaged", str(error))
