"""Owners of segments as a broker makes them, over any store and clock."""

from collections.abc import Awaitable, Callable

import pyarrow as pa

from filer.clock import Clock
from filer.format.requests import Position
from filer.format.segment_file import decode
from filer.segment.next_file import Single
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import Inherit, SegmentRef, nothing_inherited, recover_index
from filer.segment.writer.ownership_proof import TopicRecordChecks, unknown
from filer.segment.writer.replicated_acks import Replication
from filer.segment.writer.segment_writer import SegmentWriter, WriterContext
from filer.segment.writer.write_limiter import WriteLimiter
from filer.segment.writer.writer_settings import WriterSettings
from filer.stores.store import Store
from filer.stores.store_time import Moment

GRACE_SECONDS = 60.0


async def still_there() -> bool:
    return True


def owner(
    store: Store,
    clock: Clock,
    ref: SegmentRef,
    index: SegmentIndex,
    *,
    broker: str = "a.1",
    look: Callable[[], Awaitable[bool]] = still_there,
    is_open: Callable[[], Awaitable[bool]] = unknown,
    flush_bytes: int = 1 << 20,
    flush_interval_seconds: float = 0.0,
    inherit: Inherit = nothing_inherited,
    replication: Replication | None = None,
    awaited: bool = False,
    proven: Moment | None = None,
) -> SegmentWriter:
    """A writer from the end of that index on; files are superseded for `GRACE_SECONDS`."""
    settings = WriterSettings(
        flush_bytes=flush_bytes, flush_interval_seconds=flush_interval_seconds, grace_seconds=GRACE_SECONDS
    )
    return SegmentWriter(
        WriterContext(store, clock, broker, settings, WriteLimiter(1)),
        ref,
        index,
        checks=TopicRecordChecks(look, is_open),
        on_stored=lambda stored: None,
        on_stopped=lambda segment, why: None,
        inherit=inherit,
        replication=replication,
        awaited=awaited,
        proven=proven,
    )


def single(value: bytes) -> Single:
    return Single(b"k", value, None, None)


def offset_of(answer: list[Position]) -> int:
    """Where the messages begin that were answered with one position."""
    (position,) = answer
    return position.offset


async def stored_values(store: Store, ref: SegmentRef) -> list[bytes]:
    """Values of the whole log from offset 0 on, as a fresh broker recovers it."""
    index = await recover_index(store, ref)
    tables = []
    for facts in index.files:
        table = decode((await store.get(ref.key(facts.name))).data)
        tables.append(table.slice(facts.start - facts.base, facts.count))
    values: list[bytes] = pa.concat_tables([ref.schema.log.empty_table(), *tables])["value"].to_pylist()
    return values
