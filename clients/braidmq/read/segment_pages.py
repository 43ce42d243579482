"""Reads one segment by offset, for readers that keep offsets instead of markers."""

from dataclasses import dataclass

import httpx
import pyarrow as pa

from braidmq.defaults import PAGE_ROWS
from braidmq.errors import InvalidArgument, NotABroker
from braidmq.names import topic_path
from braidmq.read.reader import PAGE_BYTES, arrow_of
from braidmq.transport.problems import address_of
from braidmq.transport.retry import Retry
from braidmq.transport.transport import ARROW, Call, Transport


@dataclass(frozen=True, slots=True)
class SegmentPage:
    """Consecutive messages of one segment.

    `next_offset` is where the next page begins. `end_offset` is where the segment ends; None while it is open.
    """

    table: pa.Table
    next_offset: int
    end_offset: int | None


async def segment_page(
    transport: Transport,
    topic: str,
    segment: int,
    offset: int,
    *,
    limit: int,
    wait_seconds: float,
    retry: Retry | None = None,
) -> SegmentPage:
    """Return one page from an offset on, after waiting up to `wait_seconds` for a first message."""
    if limit < 1 or offset < 0:
        raise InvalidArgument(f"limit is {limit} and offset is {offset}: they must be at least 1 and 0")
    params: dict[str, str | int | float] = {
        "offset": offset,
        "limit": min(limit, PAGE_ROWS),
        "max_bytes": PAGE_BYTES,
        "wait": wait_seconds,
    }
    target = f"{topic_path(topic)}/segments/{segment}/messages"
    call = Call("GET", target, params=params, headers={"accept": ARROW}, wait_seconds=wait_seconds)
    response = await transport.request(call, retry=retry)
    end = response.headers.get("braid-end-offset")
    return SegmentPage(arrow_of(response), _next_offset(response), None if end is None else int(end))


def _next_offset(response: httpx.Response) -> int:
    header = response.headers.get("braid-next-offset", "")
    if not header.isdecimal():
        raise NotABroker(f"{address_of(response)} answered without an offset: is a BraidMQ broker listening there?")
    return int(header)
