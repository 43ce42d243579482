"""Bulk loads over HTTP: reserve segments, get URLs for files, commit, abandon (docs/design.md §10a)."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import Field

from filer import keys
from filer.bulk_load.load_check import FileClaim
from filer.errors import InvalidName
from filer.times import rfc3339
from filer.topic.reservations import MOST_SEGMENTS
from filer.topic.topic_state import Load
from mq.base.errors import Draining
from mq.broker import Broker
from mq.bulk_load.bulk_loads import MOST_FILE_BYTES, URL_SECONDS, FileTarget, committed_segments
from mq.bulk_load.load_folders import MOST_FILES
from mq.forms.json_form import JsonBody, M, body_in_steps
from mq.http.json_body import parse_body
from mq.http.large_bodies import large_body
from mq.http.principals import presigned_seconds, principal_of
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import ABORT_LOAD, BEGIN_LOAD, COMMIT_LOAD, GET_LOAD, LOAD_URLS
from mq.limits.steps import in_turns

MOST_COMMIT_BYTES = 4 * 1024 * 1024
MOST_TARGETS = 1000
_LOAD_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}\Z")
_LoadId = Annotated[str, Path(description="The name of the bulk load: 1 to 64 of A-Z a-z 0-9 . _ -.")]
# In the path of a file these numbers have at most 18 digits.
_Count = Annotated[int, Field(ge=0, lt=10**18)]


class ReserveRequest(JsonBody):
    """How many segments to reserve for a bulk load, and its name. Without a name it gets one."""

    EXAMPLE = '{"segments": 4}'

    segments: Annotated[int, Field(ge=1, le=MOST_SEGMENTS)]
    load: str | None = None


class FileSize(JsonBody):
    """A file that is about to be written, with its exact size in bytes."""

    EXAMPLE = '{"segment": 7, "base_offset": 0, "size": 1048576}'

    segment: _Count
    base_offset: _Count
    size: Annotated[int, Field(ge=1, le=MOST_FILE_BYTES)]


class TargetsRequest(JsonBody):
    """Files that are about to be written. `look` asks for each which file exists already."""

    EXAMPLE = f'{{"files": [{FileSize.EXAMPLE}]}}'

    files: Annotated[list[FileSize], Field(max_length=MOST_TARGETS)]
    look: bool = False


class CommittedFile(FileSize):
    """A file that has been written, with the number of its messages."""

    EXAMPLE = '{"segment": 7, "base_offset": 0, "count": 1000, "size": 1048576}'

    count: Annotated[int, Field(ge=1, lt=10**18)]


class CommitRequest(JsonBody):
    """All files of a bulk load."""

    EXAMPLE = f'{{"files": [{CommittedFile.EXAMPLE}]}}'

    files: Annotated[list[CommittedFile], Field(max_length=MOST_FILES)]


def loads_router(broker: Broker) -> APIRouter:
    """The endpoints of bulk loads."""
    router = new_router("loads")

    async def parsed(request: Request, model: type[M], most: int) -> M:
        async with large_body(broker, request, MOST_COMMIT_BYTES) as body:
            return await in_turns(body_in_steps(body, model, most), broker.turns.others)

    @router.serves(BEGIN_LOAD, body=ReserveRequest)
    async def reserve(request: Request, topic: str) -> Response:
        """Reserve segments for a bulk load (201). Repeated, it gives the same answer (200)."""
        _refuse_draining(broker)
        wanted = await parse_body(request, ReserveRequest)
        load_id = _checked_id(broker.clock.ulid() if wanted.load is None else wanted.load)
        load, made = await broker.loads.reserve(topic, load_id, wanted.segments)
        return json_response(_reservation(topic, load), status=201 if made else 200)

    @router.serves(LOAD_URLS, body=TargetsRequest)
    async def urls(request: Request, topic: str, load: _LoadId) -> Response:
        """Get URLs to which to PUT files of a bulk load, once each. With `look`, also which files exist already."""
        _refuse_draining(broker)
        wanted = await parsed(request, TargetsRequest, MOST_TARGETS)
        files = [FileClaim(each.segment, each.base_offset, 0, each.size) for each in wanted.files]
        expires_seconds = presigned_seconds(request, broker.clock, URL_SECONDS)
        found, targets = await broker.loads.file_targets(
            topic, _checked_id(load), files, look=wanted.look, expires_seconds=expires_seconds
        )
        base_url = f"{str(request.base_url).rstrip('/')}/v1/topics/{topic}/loads/{load}/files"
        return json_response(
            {
                "files": [
                    _target(broker, base_url, file, target, found.expires_us, look=wanted.look)
                    for file, target in zip(files, targets, strict=True)
                ]
            }
        )

    @router.serves(COMMIT_LOAD, body=CommitRequest)
    async def commit(request: Request, topic: str, load: _LoadId) -> Response:
        """Check the files of a bulk load and adopt all of its segments, or none. Repeated, it gives the same answer."""
        _refuse_draining(broker)
        wanted = await parsed(request, CommitRequest, MOST_FILES)
        files = [FileClaim(each.segment, each.base_offset, each.count, each.size) for each in wanted.files]
        return json_response(
            _committed(await broker.loads.commit(topic, _checked_id(load), files, principal_of(request).name))
        )

    @router.serves(GET_LOAD)
    async def describe(topic: str, load: _LoadId) -> Response:
        """Describe a bulk load: reserved, committing or committed."""
        state, found = await broker.loads.find(topic, _checked_id(load))
        committing = found.version is None and broker.loads.is_committing(state, found)
        state_name = "committing" if committing else "reserved" if found.version is None else "committed"
        answer = {**_reservation(topic, found), "state": state_name}
        return json_response(answer if found.version is None else {**answer, **_committed(found)})

    @router.serves(ABORT_LOAD)
    async def abandon(topic: str, load: _LoadId) -> Response:
        """Abandon a bulk load that is not committed. Its files are deleted after the grace period."""
        _refuse_draining(broker)
        await broker.loads.abandon(topic, _checked_id(load))
        return Response(status_code=204)

    return router


def _refuse_draining(broker: Broker) -> None:
    if broker.draining.is_set():
        raise Draining()


def _checked_id(load_id: str) -> str:
    if not _LOAD_ID.match(load_id):
        raise InvalidName(f"{load_id[:80]!r} cannot name a load: 1 to 64 of A-Z a-z 0-9 . _ -, not '.' or '..'")
    return load_id


def _reservation(topic: str, load: Load) -> dict[str, Any]:
    return {
        "load": load.id,
        "timestamp": rfc3339(load.reserved_us),
        "expires": rfc3339(load.expires_us),
        "digests": True,
        "segments": [
            {"segment": segment, "range": list(slots), "prefix": keys.segment_folder(topic, segment)}
            for segment, slots in load.ranges.items()
        ],
    }


def _committed(load: Load) -> dict[str, Any]:
    return {
        "load": load.id,
        "version": load.version,
        "messages": sum(load.ends),
        "segments": [
            {"segment": segment, "range": list(slots), "end_offset": end}
            for segment, slots, end in committed_segments(load)
        ],
    }


def _target(
    broker: Broker, base_url: str, file: FileClaim, target: FileTarget, expires_us: int, *, look: bool
) -> dict[str, Any]:
    presigned = target.presigned
    answer: dict[str, Any] = {
        "segment": file.segment,
        "base_offset": file.base_offset,
        "uri": broker.store.uri(target.key),
        "url": presigned.url if presigned else f"{base_url}/{file.segment}/{file.base_offset}",
        "method": "PUT",
        "headers": dict(presigned.headers) if presigned else {},
        "expires": rfc3339(presigned.expires_us if presigned else expires_us),
    }
    if look:
        answer["there"] = target.existing and {"size": target.existing.size_bytes, "etag": target.existing.etag}
    return answer
