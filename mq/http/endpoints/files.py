"""The live segment files, for readers that read the store themselves, and the notice that others have written files."""

import re
from collections.abc import Set
from itertools import islice, takewhile
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from filer.errors import InvalidInput, Remedy, UnreadableObject
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import unreadable_end
from filer.segment.segment_reader import unreadable
from filer.times import rfc3339
from filer.topic.positions import Positions, passed_by
from mq.base.errors import Conflict
from mq.broker import Broker
from mq.http.principals import presigned_seconds
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import FILES, SEGMENT_FILES, UPKEEP
from mq.service.start import check_offset, start_positions
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_view import TopicView

PRESIGNED_SECONDS = 3600
LISTING_AGE_SHARE = 0.05
"""Segments that another broker maintains, and sizes of files, are listed as of at most this share of `grace` ago."""
_AFTER = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\Z")


def files_router(broker: Broker) -> APIRouter:
    """The endpoints for offline readers."""
    router = new_router("files")

    @router.serves(FILES)
    async def files(
        request: Request,
        topic: str,
        from_: Annotated[str | None, Query(alias="from", description="earliest, latest or an RFC 3339 time.")] = None,
        after: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """List the live segment files in reading order. They stay at least for the grace period."""
        runtime = await _with_files(broker, topic)
        reader, first = await broker.reader(topic), _parse_after(after)
        since = await start_positions(topic, reader, None, from_, default="earliest") if from_ else None
        expires_seconds = presigned_seconds(request, broker.clock, PRESIGNED_SECONDS)
        return json_response(await _listed(broker, runtime, since, first, limit, expires_seconds))

    @router.serves(SEGMENT_FILES)
    async def segment_files(
        request: Request,
        topic: str,
        segment: int,
        offset: Annotated[int, Query(ge=0, le=2**62, description="The first offset to include.")] = 0,
        end_offset: Annotated[
            int | None, Query(ge=0, le=2**62, description="The offset after the last one to include.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """List the live files of one segment that hold messages from `offset` to `end_offset`."""
        runtime = await _with_files(broker, topic)
        await check_offset(TopicView(runtime), segment, offset, await broker.reader(topic))
        expires_seconds = presigned_seconds(request, broker.clock, PRESIGNED_SECONDS)
        return json_response(
            await _listed_of_segment(broker, runtime, segment, offset, end_offset, limit, expires_seconds)
        )

    @router.serves(UPKEEP)
    async def upkeep(topic: str) -> Response:
        """Make this broker look for roll-ups that other programs wrote of the segments that it maintains.

        Readers that read by file names use a roll-up as soon as it exists. Brokers use it once the broker that
        maintains the segment has found it; the files that it replaces are deleted a grace period later.
        """
        runtime = await broker.topics.topic(topic)
        return json_response({"topic": topic, "segments": broker.maintenance.invalidate(runtime.topic)}, status=202)

    return router


async def _with_files(broker: Broker, topic: str) -> TopicRuntime:
    """The topic. Raises `Conflict` for a member of a topic group: its files have messages of other members too."""
    view = await broker.topics.view(topic)
    if view.member is not None:
        group = view.runtime.topic
        raise Conflict(
            "topic-group-member",
            f"the messages of {topic!r} lie in the files of topic group {group!r}, among those of other topics",
            Remedy("read-files-of-topic-group", topic=topic, topic_group=group),
        )
    return view.runtime


async def _listed(
    broker: Broker,
    runtime: TopicRuntime,
    since: Positions | None,
    first: tuple[int, int],
    limit: int,
    expires_seconds: int,
) -> dict[str, Any]:
    """The files of all segments, from the segment and offset `first` on; addresses are good for `expires_seconds`."""
    first_segment, first_offset = first
    passed = passed_by(runtime.state, since) if since is not None else set[int]()
    listed: list[dict[str, Any]] = []
    for segment in runtime.state.segments:
        begin = _begin(since, passed, segment.id, segment.start_offset)
        if begin is None or segment.id < first_segment:
            continue
        if segment.id == first_segment:
            begin = max(begin, first_offset)
        index = await _index(broker, runtime, segment.id)
        for facts in index.readable(begin):
            if facts.count == 0:
                continue
            if len(listed) == limit:
                return {"files": listed, "next": f"{segment.id}-{facts.start}"}
            listed.append(await _file(broker, runtime, segment.id, facts, expires_seconds))
        if (gap := _next_gap(runtime, segment.id, index, begin)) is not None:
            # The next messages have no file: the page ends here, and the next one reports why.
            start, error = gap
            if listed:
                return {"files": listed, "next": f"{segment.id}-{start}"}
            behind = error.next_offset
            error.next_marker = f"{segment.id + 1}-0" if behind is None else f"{segment.id}-{behind}"
            raise error
    return {"files": listed, "next": None}


def _next_gap(
    runtime: TopicRuntime, segment_id: int, index: SegmentIndex, offset: int
) -> tuple[int, UnreadableObject] | None:
    """The first offset from `offset` on whose messages cannot be read, and the error for its readers.

    None if all can be read, apart from messages that are given up. It is not known whether there were messages behind a
    damaged last file. A damaged seal has none.
    """
    ref, segment = runtime.ref(segment_id), runtime.state.segment(segment_id)
    for hole in index.lost:
        if hole.end > offset:
            start = max(offset, hole.start)
            return start, unreadable(ref, hole, start)
    if segment is not None and segment.is_over_at(index.end):
        return None
    return None if (error := unreadable_end(ref, index)) is None else (index.end, error)


async def _listed_of_segment(
    broker: Broker, runtime: TopicRuntime, segment: int, offset: int, end: int | None, limit: int, expires_seconds: int
) -> dict[str, Any]:
    index = await _index_to(broker, runtime, segment, end)
    stop = index.end if end is None else end
    within = takewhile(lambda facts: facts.start < stop, index.readable(offset))
    wanted = list(islice((facts for facts in within if facts.count), limit + 1))
    listed = [await _file(broker, runtime, segment, facts, expires_seconds) for facts in wanted[:limit]]
    if len(wanted) > limit:
        return {"files": listed, "next_offset": wanted[limit].start}
    gap = _next_gap(runtime, segment, index, offset)
    if gap is None or (end is not None and gap[0] >= end):
        return {"files": listed, "next_offset": None}
    start, error = gap
    if not listed:
        raise error
    return {"files": listed, "next_offset": start}


def _parse_after(after: str | None) -> tuple[int, int]:
    if after is None:
        return -1, 0
    match = _AFTER.match(after)
    if match is None:
        raise InvalidInput(f"after: {after!r:.80} is not the 'next' of an answer")
    return int(match[1]), int(match[2])


def _begin(since: Positions | None, passed: Set[int], segment_id: int, start_offset: int) -> int | None:
    """The offset from which a segment's files are wanted; None if the whole segment lies before the start."""
    if since is None:
        return start_offset
    if segment_id in since:
        return max(since[segment_id], start_offset)
    return start_offset if segment_id > min(since) and segment_id not in passed else None


async def _index(broker: Broker, runtime: TopicRuntime, segment_id: int) -> SegmentIndex:
    """An index whose files stay for the grace period, or nearly so long if another broker maintains the segment."""
    return await runtime.reads.index_for_listing(
        segment_id,
        maintained=broker.maintenance.is_maintainer(runtime),
        longest_seconds=broker.settings.grace * LISTING_AGE_SHARE,
    )


async def _index_to(broker: Broker, runtime: TopicRuntime, segment_id: int, end: int | None) -> SegmentIndex:
    """As `_index`, but without a listing of the store if the segment is known here to reach `end`."""
    if end is not None and broker.maintenance.is_maintainer(runtime):
        index = await runtime.reads.index(segment_id)
        if index.end >= end:
            return index
    return await _index(broker, runtime, segment_id)


async def _file(
    broker: Broker, runtime: TopicRuntime, segment_id: int, facts: FileFacts, expires_seconds: int
) -> dict[str, Any]:
    key = runtime.ref(segment_id).key(facts.name)
    presigned = await broker.store.presign_get(key, expires_seconds=expires_seconds)
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
