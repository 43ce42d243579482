"""A topic written to a store without a broker: topic.json, and the files of its segments as owners write them."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from filer import keys
from filer.clock import SystemClock
from filer.errors import ObjectExists
from filer.format.schema import MessageSchema
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.slots import SLOTS, equal_ranges
from filer.stores.local.local_store import LocalStore
from filer.stores.store import Store
from filer.topic.cluster_record import ClusterRecord
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from mq.base.settings import BrokerSettings
from tests.support.topic.segment_files import append, append_singly

TOPIC = "t"


async def store_topic(
    root: Path,
    *,
    sealed: Mapping[int, Sequence[int]],
    still_open: Sequence[int] = (3,),
    config: TopicConfig | None = None,
) -> TopicState:
    """Sealed segments by id, with the counts of their files (and an empty seal), side by side over all slots; behind
    them one open segment of all slots with files of those counts."""
    config = config or TopicConfig()
    last = max(sealed, default=-1) + 1
    refs = {
        each: SegmentRef(TOPIC, each, MessageSchema.of(config.key_type, config.value_type)) for each in (*sealed, last)
    }
    store = LocalStore(root, clock=SystemClock())
    try:
        ends = {each: await write_sealed(store, refs[each], counts) for each, counts in sealed.items()}
        await _write(store, refs[last], still_open)
        return await put_topic(store, ends=ends, config=config)
    finally:
        await store.close()


async def put_topic(
    store: Store,
    *,
    ends: Mapping[int, int],
    start_offset: int = 0,
    open_segment: int | None = None,
    config: TopicConfig | None = None,
) -> TopicState:
    """topic.json: sealed segments with their ends and an empty seal each, and one open one, by default the next."""
    last = max(ends, default=-1) + 1 if open_segment is None else open_segment
    sealed = [
        Segment(
            id=each, start_slot=bounds[0], stop_slot=bounds[1], brokers=("b",), opened_us=1, reason="create",
            successors=(last,), state="sealed", start_offset=start_offset, end_offset=end, seal_offset=end, sealed_us=2,
        )
        for (each, end), bounds in zip(ends.items(), equal_ranges(max(len(ends), 1)), strict=False)
    ]  # fmt: skip
    still_open = Segment(
        id=last,
        start_slot=0,
        stop_slot=SLOTS,
        brokers=("b",),
        opened_us=2,
        reason="merge" if ends else "create",
        predecessors=tuple(ends),
    )
    state = TopicState(
        topic=TOPIC,
        created_us=1,
        version=1,
        next_segment=last + 1,
        config=config or TopicConfig(),
        segments=(*sealed, still_open),
    )
    # Brokers do not make a cluster of their own over topics: this one is as the version before has written it.
    cluster = ClusterRecord(format=1, cluster=BrokerSettings().cluster, id="stored", upload_secret="c2VjcmV0")
    with contextlib.suppress(ObjectExists):
        await store.create(keys.CLUSTER, cluster.model_dump_json().encode())
    await store.create(keys.topic(TOPIC), state.to_json())
    return state


async def write_sealed(store: Store, ref: SegmentRef, counts: Sequence[int]) -> int:
    """Write the files of a segment and its empty seal. Returns its end offset."""
    index = await _write(store, ref, counts)
    await append(store, ref, index, 0, sealed=True)
    return index.end


async def _write(store: Store, ref: SegmentRef, counts: Sequence[int]) -> SegmentIndex:
    index = SegmentIndex()
    if all(count == 1 for count in counts):
        await append_singly(store, ref, index, len(counts))
        return index
    for count in counts:
        await append(store, ref, index, count)
    return index
