"""Owners of segments as a broker makes them, over any store and clock."""

from collections.abc import Awaitable, Callable

import pyarrow as pa

from filer.clock import Clock
from filer.next_file import Single
from filer.requests import Position
from filer.segment_file import decode
from filer.segment_index import SegmentIndex
from filer.segment_log import Inherit, SegmentRef, nothing_inherited, recover_index
from filer.segment_writer import Replication, SegmentWriter, WriterSettings, unknown
from filer.store import Store
from filer.turns import Turns

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
) -> SegmentWriter:
    """A writer from the end of that index on; files are superseded for `GRACE_SECONDS`."""
    return SegmentWriter(
        store,
        clock,
        ref,
        index,
        broker=broker,
        settings=WriterSettings(
            flush_bytes=flush_bytes, flush_interval_seconds=flush_interval_seconds, grace_seconds=GRACE_SECONDS
        ),
        turns=Turns(1),
        look=look,
        is_open=is_open,
        on_stored=lambda stored: None,
        on_stopped=lambda segment, why: None,
        inherit=inherit,
        replication=replication,
        awaited=awaited,
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
    values: list[bytes] = pa.concat_tables([ref.schema.empty_table(), *tables])["value"].to_pylist()
    return values
