"""The live segment files, for readers that go to the store themselves; news of files that others wrote."""

import re
from collections.abc import Set
from itertools import islice, takewhile
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from filer.errors import InvalidInput
from filer.live_files import FileFacts
from filer.positions import Positions, passed_by
from filer.segment_index import SegmentIndex
from mq.broker import Broker
from mq.http.answers import json_response
from mq.http.routers import new_router
from mq.http.start import check_offset, start_positions
from mq.render import rfc3339
from mq.topic_runtime import TopicRuntime

PRESIGNED_SECONDS = 3600
LISTING_AGE_SHARE = 0.05
"""What another broker keeps is listed as it was this part of the grace period ago at most."""
_AFTER = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\Z")


def files_router(broker: Broker) -> APIRouter:
    """The endpoint for offline readers."""
    router = new_router("files")

    @router.get("/v1/topics/{topic}/files")
    async def files(
        topic: str,
        from_: Annotated[str | None, Query(alias="from", description="earliest, latest or an RFC 3339 time.")] = None,
        after: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Segment files that count now, in the order to read them; they stay for the grace period at least."""
        runtime = await broker.topic(topic)
        reader, place = await broker.reader(topic), _parse_after(after)
        since = await start_positions(topic, reader, None, from_, default="earliest") if from_ else None
        return json_response(await _listed(broker, runtime, since, place, limit))

    @router.get("/v1/topics/{topic}/segments/{segment}/files")
    async def segment_files(
        topic: str,
        segment: int,
        offset: Annotated[int, Query(ge=0, le=2**62, description="The first offset that is wanted.")] = 0,
        end_offset: Annotated[int | None, Query(ge=0, le=2**62, description="Behind the last one wanted.")] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Files of one segment that count now and hold any of its messages from `offset` to `end_offset`."""
        runtime = await broker.topic(topic)
        await check_offset(runtime, segment, offset, await broker.reader(topic))
        return json_response(await _listed_of_segment(broker, runtime, segment, offset, end_offset, limit))

    @router.post("/v1/topics/{topic}/upkeep", status_code=202)
    async def upkeep(topic: str) -> Response:
        """Have this broker look for roll-ups that other programs wrote of the topic's segments that it keeps.

        They count for all who read by names from the moment they are there; once the broker that keeps a segment has
        taken them in, they count for brokers as well, and the files they stand for go a grace period later.
        """
        runtime = await broker.topic(topic)
        return json_response({"topic": topic, "segments": broker.maintenance.look_again(runtime.topic)}, status=202)

    return router


async def _listed(
    broker: Broker, runtime: TopicRuntime, since: Positions | None, place: tuple[int, int], limit: int
) -> dict[str, Any]:
    """The files of all segments, of those from a `place` (segment and offset) on."""
    first_segment, first_offset = place
    passed = passed_by(runtime.state, since) if since is not None else set[int]()
    listed: list[dict[str, Any]] = []
    for segment in runtime.state.segments:
        begin = _begin(since, passed, segment.id, segment.start_offset)
        if begin is None or segment.id < first_segment:
            continue
        if segment.id == first_segment:
            begin = max(begin, first_offset)
        for facts in (await _index(broker, runtime, segment.id)).covering(begin):
            if facts.count == 0:
                continue
            if len(listed) == limit:
                return {"files": listed, "next": f"{segment.id}-{facts.start}"}
            listed.append(await _file(broker, runtime, segment.id, facts))
    return {"files": listed, "next": None}


async def _listed_of_segment(
    broker: Broker, runtime: TopicRuntime, segment: int, offset: int, end: int | None, limit: int
) -> dict[str, Any]:
    index = await _index_to(broker, runtime, segment, end)
    stop = index.end if end is None else end
    within = takewhile(lambda facts: facts.start < stop, index.covering(offset))
    wanted = list(islice((facts for facts in within if facts.count), limit + 1))
    listed = [await _file(broker, runtime, segment, facts) for facts in wanted[:limit]]
    return {"files": listed, "next_offset": wanted[limit].start if len(wanted) > limit else None}


def _parse_after(after: str | None) -> tuple[int, int]:
    if after is None:
        return -1, 0
    match = _AFTER.match(after)
    if match is None:
        raise InvalidInput(f"after: {after!r:.80} is not the 'next' of an answer")
    return int(match[1]), int(match[2])


def _begin(since: Positions | None, passed: Set[int], segment_id: int, start_offset: int) -> int | None:
    """Offset from which a segment's files are wanted; None where it lies before the start altogether."""
    if since is None:
        return start_offset
    if segment_id in since:
        return max(since[segment_id], start_offset)
    return start_offset if segment_id > min(since) and segment_id not in passed else None


async def _index(broker: Broker, runtime: TopicRuntime, segment_id: int) -> SegmentIndex:
    """An index whose files stay for the grace period, or for nearly as long where another broker keeps the segment."""
    if broker.maintenance.keeps(runtime):
        return await runtime.index(segment_id, fresh=True)
    longest_seconds = broker.settings.grace * LISTING_AGE_SHARE
    return await runtime.index_for_listing(segment_id, longest_seconds=longest_seconds)


async def _index_to(broker: Broker, runtime: TopicRuntime, segment_id: int, end: int | None) -> SegmentIndex:
    """As `_index`, without a look at the store where it is known here that the segment goes that far."""
    if end is not None and broker.maintenance.keeps(runtime):
        index = await runtime.index(segment_id)
        if index.end >= end:
            return index
    return await _index(broker, runtime, segment_id)


async def _file(broker: Broker, runtime: TopicRuntime, segment_id: int, facts: FileFacts) -> dict[str, Any]:
    key = runtime.ref(segment_id).key(facts.name)
    presigned = await broker.store.presign_get(key, expires_seconds=PRESIGNED_SECONDS)
    return {
        "uri": broker.store.uri(key),
        "url": presigned.url if presigned else None,
        "segment": segment_id,
        "base_offset": facts.start,
        "end_offset": facts.end,
        "count": facts.count,
        "bytes": facts.size_bytes,
        "first_timestamp": rfc3339(facts.first_timestamp_us),
        "last_timestamp": rfc3339(facts.last_timestamp_us),
        "sealed": facts.sealed,
    }
