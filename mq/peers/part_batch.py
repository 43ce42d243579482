"""Parts of publish requests, packed for a segment's owner or follower: one Arrow stream that lists its parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa

from filer.format.requests import RequestId
from filer.tracing import Carrier
from mq.base.errors import Malformed

_PARTS = b"braidmq.parts"
_TRACES = b"braidmq.traces"
_OWNERS = b"braidmq.owners"


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one request that go into one segment: how many, and about how many bytes.

    `replicated`: the owner answers once all followers hold the rows. `timestamp_us` is set on the way to followers: it
    is the time at which the owner accepted the rows. `traces` contains how to continue its traces.
    """

    count: int
    size_bytes: int
    request: RequestId | None = None
    replicated: bool = False
    timestamp_us: int = 0
    traces: Sequence[Carrier] = ()


def pack_parts(rows: pa.Table, parts: Sequence[Part]) -> memoryview:
    """Pack the rows of all parts, in order. No part may lie in two chunks of the table."""
    # Older brokers take a request's producer and sequence, and nothing else here.
    listed = [
        (part.count, part.size_bytes, part.request and part.request[:2], part.replicated, part.timestamp_us)
        for part in parts
    ]
    metadata = {_PARTS: orjson.dumps(listed)}
    traces = {str(index): part.traces for index, part in enumerate(parts) if part.traces}
    if traces:
        # Older brokers look neither at this nor at the owners.
        metadata[_TRACES] = orjson.dumps(traces)
    owners = {str(index): part.request.owner for index, part in enumerate(parts) if part.request and part.request.owner}
    if owners:
        metadata[_OWNERS] = orjson.dumps(owners)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema.with_metadata(metadata)) as writer:
        writer.write_table(rows.replace_schema_metadata(metadata))
    return memoryview(sink.getvalue())


def unpack_parts(body: bytes, schema: pa.Schema) -> Iterator[tuple[Part, pa.RecordBatch]]:
    """Yield each part with its rows, in columns of `schema`. The columns are views into `body`.

    Raises `Malformed`. The bytes are not validated in full, since the sender is a broker of the same cluster.
    """
    try:
        with pa.ipc.open_stream(body) as reader:
            metadata = reader.schema.metadata or {}
            traces = orjson.loads(metadata.get(_TRACES, b"{}"))
            owners = orjson.loads(metadata.get(_OWNERS, b"{}"))
            listed = enumerate(orjson.loads(metadata[_PARTS]))
            parts = [
                _part(*entry, owner=owners.get(str(index), ""), traces=traces.get(str(index), ()))
                for index, entry in listed
            ]
            batches = [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in reader]
    except (pa.ArrowException, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise Malformed(f"these are not the parts of requests: {error}") from error
    remaining = iter(parts)
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = next(remaining, None)
            if part is None or not 1 <= part.count <= batch.num_rows - start:
                raise _does_not_add_up()
            yield part, batch.slice(start, part.count)
            start += part.count
    if next(remaining, None) is not None:
        raise _does_not_add_up()


def _does_not_add_up() -> Malformed:
    return Malformed("the parts of requests do not add up to the rows")


def _part(
    count: int,
    size_bytes: int,
    request: tuple[str, int] | None,
    replicated: bool,
    timestamp_us: int,
    *,
    owner: str,
    traces: Sequence[Carrier],
) -> Part:
    id_ = None if request is None else RequestId(*request, owner)
    return Part(count, size_bytes, id_, replicated, timestamp_us, traces)
