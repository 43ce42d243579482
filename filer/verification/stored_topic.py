"""Checks a whole topic on a store, and the records of the cluster. Reads every byte that counts once, and no more."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from filer import keys
from filer.errors import BraidError, CorruptFile, DataMissing, ObjectNotFound, UnreadableObject
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef
from filer.segment.snapshot_format import from_snapshot
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue, read_lineage
from filer.topic.cluster_record import check_cluster
from filer.topic.topic_state import Segment, TopicState, has_given_up_seal
from filer.verification.stored_segment import WHOLE, ReadPlan, verify_segment
from filer.verification.verdict import Verdict


async def verify_cluster(store: Store) -> AsyncGenerator[Verdict, None]:
    """A verdict on the three records of the cluster, named by the one that is wrong. Raises `StoreError`."""
    try:
        await check_cluster(store)
    except UnreadableObject as error:
        yield _told(error, keys.CLUSTER)
    else:
        yield Verdict(keys.CLUSTER, "ok")


async def verify_lists(store: Store, topic: str) -> AsyncGenerator[Verdict, None]:
    """A verdict on each file of a topic's history, and on each snapshot: no message is lost with one of them."""
    async for verdict in _verify_objects(store, keys.history_folder(topic), read_lineage):
        yield verdict
    async for verdict in _verify_objects(store, keys.snapshots_folder(topic), lambda _, data: from_snapshot(data, 0)):
        yield verdict


async def verify_topic(
    store: Store, catalogue: Catalogue, topic: str, *, plan: ReadPlan = WHOLE
) -> AsyncGenerator[Verdict, None]:
    """A verdict on each object of a topic that counts: its record, lineage, snapshots, and segment files.

    Of a topic group, also on the records of its members: their messages lie in its files, so no other check covers
    them. Without its record nothing shows which segments count, so its files are not checked. There are no verdicts if
    there never was such a topic. Brokers may go on meanwhile: what they delete is not reported as lost. Raises
    `StoreError`.
    """
    async for verdict in verify_records(store, catalogue, topic):
        yield verdict
        if verdict.key == keys.topic(topic) and not verdict.is_sound:
            return
    try:
        record = await catalogue.read(topic)
        for segment in () if record is None else record.state.segments:
            async with aclosing(verify_segment_of(store, catalogue, topic, segment.id, plan=plan)) as verdicts:
                async for verdict in verdicts:
                    yield verdict
    except UnreadableObject as error:
        yield _told(error, keys.topic(topic))
        return
    if record is not None:
        async for verdict in _verify_members(store, catalogue, record.state):
            yield verdict


async def _verify_members(store: Store, catalogue: Catalogue, group: TopicState) -> AsyncGenerator[Verdict, None]:
    """As `verify_records`, of the group's members. Includes each damaged record, since its group is not known."""
    for name in () if group.deleted or group.group is None else group.group.topics:
        with suppress(UnreadableObject):
            found = await catalogue.read(name)
            if found is None or found.state.member_of is None or not group.has_member(found.state.member_of):
                continue
        async for verdict in verify_records(store, catalogue, name):
            yield verdict


async def verify_records(store: Store, catalogue: Catalogue, topic: str) -> AsyncGenerator[Verdict, None]:
    """A verdict on each object of a topic but its segment files; on its record alone if that is not sound."""
    try:
        record = await catalogue.read(topic)
    except UnreadableObject as error:
        yield _told(error, keys.topic(topic))
        return
    if record is None:
        return
    yield Verdict(keys.topic(topic), "ok")
    async for verdict in verify_lists(store, topic):
        yield verdict


async def verify_segment_of(
    store: Store, catalogue: Catalogue, topic: str, segment_id: int, *, plan: ReadPlan = WHOLE
) -> AsyncGenerator[Verdict, None]:
    """As `verify_segment`, by the topic's record. None if the topic has no such segment any more.

    A fault of an object that no longer counts by then is left out: retention, or the deletion of the topic, may have
    removed it meanwhile. Both change the record before they delete a file. Raises `UnreadableObject` if the record
    cannot be used, and `StoreError`.
    """
    record = await catalogue.read(topic)
    segment = None if record is None else _segment_of(record.state, segment_id)
    if record is None or segment is None:
        return
    files = verify_segment(
        store,
        SegmentRef.of(record.state, segment),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        seal_offset=segment.seal_offset,
        plan=plan,
    )
    async with aclosing(files):
        async for verdict in files:
            told = _unless_given_up(verdict, record.state, segment)
            if told.is_sound or await _still_counts(catalogue, topic, segment, told.key):
                yield told


def _segment_of(state: TopicState, segment_id: int) -> Segment | None:
    return None if state.deleted else state.segment(segment_id)


def _unless_given_up(verdict: Verdict, state: TopicState, segment: Segment) -> Verdict:
    """The verdict; if only the segment's given-up seal is lost, a verdict that says so."""
    seal = SegmentRef.of(state, segment).key(FileName(segment.seal_offset or 0))
    if verdict.is_sound or verdict.key != seal or not has_given_up_seal(segment):
        return verdict
    return Verdict(verdict.key, "given up", "nobody waits for this seal, which held no messages")


async def _still_counts(catalogue: Catalogue, topic: str, checked: Segment, key: str) -> bool:
    """Whether nothing has removed the segment's file since the segment was looked up.

    A file in the middle of which the segment begins by now is left to the next check: its end is not known here.
    """
    record, name = await catalogue.read(topic), FileName.parse(key)
    now = None if record is None else _segment_of(record.state, checked.id)
    if now is None:
        return False
    return now.start_offset == checked.start_offset or name is None or name.base >= now.start_offset


async def _verify_objects(
    store: Store, folder: str, read: Callable[[str, bytes], object]
) -> AsyncGenerator[Verdict, None]:
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
