"""Tables as publish requests. This needs Arrow, so it is apart from the publisher, which imports it when needed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from braidmq.models import Route
from braidmq.publish.delivery import Body
from braidmq.publish.encoding.shares import Share, shares_of
from braidmq.publish.encoding.wire import ipc_bytes
from braidmq.transport.transport import ARROW


@dataclass(frozen=True, slots=True)
class Request:
    """A number of rows, and the bodies that carry them: each with the slot that it goes to, if that is known.

    `numbers` has the numbers of the rows of each body; None for a body that has all of them. It took `route_seconds` to
    find the owners.
    """

    rows: int
    bodies: tuple[tuple[int | None, Body], ...]
    numbers: tuple[Sequence[int] | None, ...]
    route_seconds: float


def request_of(table: pa.Table, route: Route | None, route_seconds: float) -> Request:
    """The request that carries a table, cut by the segments of the route."""
    shares: list[Share] = shares_of(table, None if route is None else [entry.range for entry in route.segments])
    bodies = tuple((share.slot, Body(ipc_bytes(share.table).to_pybytes(), ARROW)) for share in shares)
    return Request(table.num_rows, bodies, tuple(share.rows for share in shares), route_seconds)


def large_values(columns: pa.Table, threshold_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The rows whose values are longer than the threshold, and those values."""
    lengths: Any = pc.binary_length(columns["value"])
    large: Any = pc.greater(lengths, pa.scalar(threshold_bytes))
    if pc.any(large).as_py():
        for row in pc.indices_nonzero(large).to_pylist():
            yield row, columns["value"][row].as_buffer().to_pybytes()
