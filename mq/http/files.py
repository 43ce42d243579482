"""The live segment files, for readers that go to the store themselves; news of files that others wrote."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from filer.errors import InvalidInput
from filer.live_files import FileFacts
from filer.positions import Positions
from filer.segment_index import SegmentIndex
from mq.broker import Broker
from mq.http.answers import json_response
from mq.http.start import start_positions
from mq.render import rfc3339
from mq.topic_runtime import TopicRuntime

PRESIGNED_SECONDS = 3600
LISTING_AGE_SHARE = 0.05
"""What another broker keeps is listed as it was this part of the grace period ago at most."""
_AFTER = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\Z")


def files_router(broker: Broker) -> APIRouter:
    """The endpoint for offline readers."""
    router = APIRouter(tags=["files"])

    @router.get("/v1/topics/{topic}/files")
    async def files(
        topic: str,
        from_: Annotated[str | None, Query(alias="from", description="earliest, latest or an RFC 3339 time.")] = None,
        after: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Segment files that count now, in the order to read them; they stay for the grace period at least."""
        runtime = await broker.topic(topic)
        reader = await broker.reader(topic)
        first_segment, first_offset = _parse_after(after)
        since = await start_positions(topic, reader, None, from_, default="earliest") if from_ else None
        listed: list[dict[str, Any]] = []
        for segment in runtime.state.segments:
            if segment.id < first_segment:
                continue
            begin = _begin(runtime, since, segment.id, segment.start_offset)
            if begin is None:
                continue
            if segment.id == first_segment:
                begin = max(begin, first_offset)
            for facts in (await _index(broker, runtime, segment.id)).covering(begin):
                if facts.count == 0:
                    continue
                if len(listed) == limit:
                    return json_response({"files": listed, "next": f"{segment.id}-{facts.start}"})
                listed.append(await _file(broker, runtime, segment.id, facts))
        return json_response({"files": listed, "next": None})

    @router.post("/v1/topics/{topic}/upkeep", status_code=202)
    async def upkeep(topic: str) -> Response:
        """Have this broker look for roll-ups that other programs wrote of the topic's segments that it keeps.

        They count for all who read by names from the moment they are there; once the broker that keeps a segment has
        taken them in, they count for brokers as well, and the files they stand for go a grace period later.
        """
        runtime = await broker.topic(topic)
        return json_response({"topic": topic, "segments": broker.maintenance.look_again(runtime.topic)}, status=202)

    return router


def _parse_after(after: str | None) -> tuple[int, int]:
    if after is None:
        return -1, 0
    match = _AFTER.match(after)
    if match is None:
        raise InvalidInput(f"after: {after!r:.80} is not the 'next' of an answer")
    return int(match[1]), int(match[2])


def _begin(runtime: TopicRuntime, since: Positions | None, segment_id: int, start_offset: int) -> int | None:
    """Offset from which a segment's files are wanted; None where it lies before the start altogether."""
    if since is None:
        return start_offset
    if segment_id in since:
        return max(since[segment_id], start_offset)
    return start_offset if segment_id > min(since) and not _behind(runtime, since, segment_id) else None


def _behind(runtime: TopicRuntime, since: Positions, segment_id: int) -> bool:
    """Whether a segment was drained before the positions: one of its descendants is in them."""
    waiting, seen = [segment_id], set[int]()
    while waiting:
        segment = runtime.state.segment(waiting.pop())
        for successor in segment.successors if segment else ():
            if successor in since:
                return True
            if successor not in seen:
                seen.add(successor)
                waiting.append(successor)
    return False


async def _index(broker: Broker, runtime: TopicRuntime, segment_id: int) -> SegmentIndex:
    """An index whose files stay for the grace period, or for nearly as long where another broker keeps the segment."""
    if broker.maintenance.keeps(runtime):
        return await runtime.index(segment_id, fresh=True)
    longest_seconds = broker.settings.grace * LISTING_AGE_SHARE
    return await runtime.index_for_listing(segment_id, longest_seconds=longest_seconds)


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
