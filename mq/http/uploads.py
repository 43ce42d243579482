"""`POST /v1/topics/{topic}/uploads`: a place to put a payload before a message refers to it."""

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from filer import keys
from filer.errors import InvalidInput
from filer.nearest import unknown_name
from mq.broker import Broker
from mq.errors import BodyTooLarge, Draining
from mq.http.answers import json_response
from mq.http.json_request import json_body
from mq.http.routers import new_router
from mq.render import rfc3339


class UploadRequest(BaseModel):
    """What is to be uploaded: its exact size in bytes, and its SHA-256 where the store shall check it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str | None, Field(pattern=r"^[0-9a-f]{64}$")] = None


def uploads_router(broker: Broker) -> APIRouter:
    """The endpoint that issues uploads."""
    router = new_router("uploads")

    @router.post(
        "/v1/topics/{topic}/uploads",
        status_code=201,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": UploadRequest.model_json_schema()}},
            }
        },
    )
    async def issue(request: Request, topic: str) -> Response:
        """Issue an upload: PUT the payload to `url` with `headers`, then publish `"ref": {"upload": id}`."""
        if broker.draining.is_set():
            raise Draining()
        await broker.topic(topic)
        wanted = await _wanted(request)
        path = f"/v1/topics/{topic}/uploads"
        limit_bytes = broker.settings.max_upload_bytes
        if wanted.size > limit_bytes:
            raise BodyTooLarge(f"an upload has at most {limit_bytes} bytes", limit_bytes, path)
        upload = broker.uploads.issue(topic, wanted.size, wanted.sha256)
        left_seconds = max((upload.expires_us - broker.clock.now_us()) // 1_000_000, 1)
        presigned = await broker.store.presign_create(
            keys.upload(topic, upload.id),
            size_bytes=wanted.size,
            sha256=wanted.sha256,
            expires_seconds=left_seconds,
        )
        answer = {
            "upload": upload.id,
            "url": presigned.url if presigned else f"{str(request.base_url).rstrip('/')}{path}/{upload.id}",
            "method": "PUT",
            "headers": dict(presigned.headers) if presigned else {},
            "expires": rfc3339(upload.expires_us),
        }
        return json_response(answer, status=201)

    return router


async def _wanted(request: Request) -> UploadRequest:
    """The body of a POST; raises `InvalidInput` that names the field, and as `json_body`."""
    document = await json_body(request)
    if not isinstance(document, dict):
        raise InvalidInput('the body is to be an object {"size": bytes, "sha256": hex, if you like}')
    for name in document:
        if name not in UploadRequest.model_fields:
            raise InvalidInput(unknown_name("field", name, UploadRequest.model_fields))
    try:
        return UploadRequest.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInput(f"{first['loc'][0]}: {first['msg']}") from error
