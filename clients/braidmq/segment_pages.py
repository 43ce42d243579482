"""Reading one segment by offset: what a reader does who keeps offsets and not markers."""

from dataclasses import dataclass

import httpx
import pyarrow as pa

from braidmq.errors import InvalidArgument, NotABroker
from braidmq.names import topic_path
from braidmq.reader import PAGE_BYTES, PAGE_ROWS, arrow_of
from braidmq.transport import ARROW, Call, Transport


@dataclass(frozen=True, slots=True)
class SegmentPage:
    """Consecutive messages of one segment.

    `next_offset` is where the next page begins; `end_offset` is where the segment ends, None while it is open.
    """

    table: pa.Table
    next_offset: int
    end_offset: int | None


async def segment_page(
    transport: Transport, topic: str, segment: int, offset: int, *, limit: int, wait_seconds: float
) -> SegmentPage:
    """One page from an offset on, waiting so long for a first message."""
    if limit < 1 or offset < 0:
        raise InvalidArgument(f"limit is {limit} and offset {offset}: they must be at least 1 and 0")
    params: dict[str, str | int | float] = {
        "offset": offset,
        "limit": min(limit, PAGE_ROWS),
        "max_bytes": PAGE_BYTES,
        "wait": wait_seconds,
    }
    target = f"{topic_path(topic)}/segments/{segment}/messages"
    call = Call("GET", target, params=params, headers={"accept": ARROW}, wait_seconds=wait_seconds)
    response = await transport.request(call)
    end = response.headers.get("braid-end-offset")
    return SegmentPage(arrow_of(response), _next_offset(response), None if end is None else int(end))


def _next_offset(response: httpx.Response) -> int:
    told = response.headers.get("braid-next-offset", "")
    if not told.isdecimal():
        raise NotABroker(f"{response.request.url} answered without an offset: is a BraidMQ broker listening there?")
    return int(told)
