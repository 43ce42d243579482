"""Loads over HTTP: reserving segments, places for files, the commit, and giving up (DESIGN.md §10a)."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from filer import keys
from filer.errors import InvalidInput, InvalidName
from filer.load_check import FileClaim
from filer.loads import MOST_SEGMENTS
from filer.nearest import unknown_name
from filer.topic_state import Load
from mq.broker import Broker
from mq.errors import Draining
from mq.http.answers import json_response
from mq.http.json_request import json_body
from mq.http.routers import new_router
from mq.load_folders import MOST_FILES
from mq.loads import MOST_FILE_BYTES, committed_segments
from mq.loads import Place as FilePlace
from mq.render import rfc3339

MOST_COMMIT_BYTES = 4 * 1024 * 1024
MOST_PLACES = 1000
_LOAD_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}\Z")
_LoadId = Annotated[str, Path(description="What the load is called: 1 to 64 of A-Z a-z 0-9 . _ -.")]
# In a path of ours they have 18 digits at most.
_Count = Annotated[int, Field(ge=0, lt=10**18)]
R = TypeVar("R", bound=BaseModel)


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ReserveRequest(_Asked):
    """How many segments a load wants, and what it is called; a name is made where none is given."""

    segments: Annotated[int, Field(ge=1, le=MOST_SEGMENTS)]
    load: str | None = None


class PlacedFile(_Asked):
    """A file that is about to be written, with its exact size in bytes."""

    segment: _Count
    base_offset: _Count
    size: Annotated[int, Field(ge=1, le=MOST_FILE_BYTES)]


class PlacesRequest(_Asked):
    """Files that are about to be written; `look` asks what is there already."""

    files: Annotated[list[PlacedFile], Field(max_length=MOST_PLACES)]
    look: bool = False


class CommittedFile(PlacedFile):
    """A file that has been written, with the messages in it."""

    count: Annotated[int, Field(ge=1, lt=10**18)]


class CommitRequest(_Asked):
    """All files of a load."""

    files: Annotated[list[CommittedFile], Field(max_length=MOST_FILES)]


def loads_router(broker: Broker) -> APIRouter:
    """The endpoints of loads."""
    router = new_router("loads")
    path = "/v1/topics/{topic}/loads"

    @router.post(path, status_code=201, openapi_extra=_body(ReserveRequest))
    async def reserve(request: Request, topic: str) -> Response:
        """Reserve segments for a load; the same again where that load is known (200)."""
        _refuse_draining(broker)
        wanted = await _wanted(request, ReserveRequest, '{"segments": 4}')
        load_id = _checked_id(broker.clock.ulid() if wanted.load is None else wanted.load)
        load, made = await broker.loads.reserve(topic, load_id, wanted.segments)
        return json_response(_reservation(topic, load), status=201 if made else 200)

    @router.post(path + "/{load}/urls", openapi_extra=_body(PlacesRequest))
    async def urls(request: Request, topic: str, load: _LoadId) -> Response:
        """Where to PUT files of a load, once each; with `look` also what is there already."""
        _refuse_draining(broker)
        example = '{"files": [{"segment": 7, "base_offset": 0, "size": 1048576}]}'
        wanted = await _wanted(request, PlacesRequest, example)
        files = [FileClaim(each.segment, each.base_offset, 0, each.size) for each in wanted.files]
        found, places = await broker.loads.places(topic, _checked_id(load), files, look=wanted.look)
        base_url = f"{str(request.base_url).rstrip('/')}/v1/topics/{topic}/loads/{load}/files"
        return json_response(
            {
                "files": [
                    _place(broker, base_url, file, place, found.expires_us, look=wanted.look)
                    for file, place in zip(files, places, strict=True)
                ]
            }
        )

    @router.post(path + "/{load}", openapi_extra=_body(CommitRequest))
    async def commit(request: Request, topic: str, load: _LoadId) -> Response:
        """Check the files of a load and adopt its segments, all of them or none; the same answer when repeated."""
        _refuse_draining(broker)
        example = '{"files": [{"segment": 7, "base_offset": 0, "count": 1000, "size": 1048576}]}'
        wanted = await _wanted(request, CommitRequest, example)
        files = [FileClaim(each.segment, each.base_offset, each.count, each.size) for each in wanted.files]
        return json_response(_committed(await broker.loads.commit(topic, _checked_id(load), files)))

    @router.get(path + "/{load}")
    async def describe(topic: str, load: _LoadId) -> Response:
        """How a load stands: reserved, committing or committed."""
        state, found = await broker.loads.find(topic, _checked_id(load))
        committing = found.version is None and broker.loads.is_committing(state, found)
        stands = "committing" if committing else "reserved" if found.version is None else "committed"
        answer = {**_reservation(topic, found), "state": stands}
        return json_response(answer if found.version is None else {**answer, **_committed(found)})

    @router.delete(path + "/{load}", status_code=204)
    async def abandon(topic: str, load: _LoadId) -> Response:
        """Give up a load that is not committed: its files go after the grace period."""
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


def _place(
    broker: Broker, base_url: str, file: FileClaim, place: FilePlace, expires_us: int, *, look: bool
) -> dict[str, Any]:
    presigned = place.presigned
    answer: dict[str, Any] = {
        "segment": file.segment,
        "base_offset": file.base_offset,
        "uri": broker.store.uri(place.key),
        "url": presigned.url if presigned else f"{base_url}/{file.segment}/{file.base_offset}",
        "method": "PUT",
        "headers": dict(presigned.headers) if presigned else {},
        "expires": rfc3339(presigned.expires_us if presigned else expires_us),
    }
    if look:
        answer["there"] = place.there and {"size": place.there.size_bytes, "etag": place.there.etag}
    return answer


async def _wanted(request: Request, kind: type[R], example: str) -> R:
    """The body of a POST; raises `InvalidInput` that names the field, and as `json_body`."""
    document = await json_body(request, most_bytes=MOST_COMMIT_BYTES)
    if not isinstance(document, dict):
        raise InvalidInput(f"the body is to be an object such as {example}")
    _refuse_unknown(document, kind.model_fields)
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        # Of a file that is no object pydantic would name our own class.
        reason = "an object is wanted" if first["type"] == "model_type" else first["msg"]
        raise InvalidInput(f"{place}: {reason}, as in {example}") from error


def _refuse_unknown(document: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any]) -> None:
    for name in document:
        if name not in known:
            raise InvalidInput(unknown_name("field", name, known))


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    # OpenAPI would look for what a schema refers to in another place.
    files = schema.pop("$defs", {})
    if "files" in schema["properties"]:
        (schema["properties"]["files"]["items"],) = files.values()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
