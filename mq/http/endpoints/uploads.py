"""`POST /v1/topics/{topic}/uploads`: issues a URL for a payload. A message refers to the payload afterwards."""

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from filer import keys
from filer.times import rfc3339
from mq.base.errors import BodyTooLarge, Draining
from mq.broker import Broker
from mq.forms.json_form import JsonBody
from mq.http.json_body import parse_body
from mq.http.principals import presigned_seconds, principal_of
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import BEGIN_UPLOAD


class UploadRequest(JsonBody):
    """The payload's exact size in bytes, and its SHA-256 if the store should check it."""

    EXAMPLE = '{"size": bytes, "sha256": hex}'

    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str | None, Field(pattern=r"^[0-9a-f]{64}$")] = None


def uploads_router(broker: Broker) -> APIRouter:
    """The endpoint that issues uploads."""
    router = new_router("uploads")

    @router.serves(BEGIN_UPLOAD, body=UploadRequest)
    async def issue(request: Request, topic: str) -> Response:
        """Issue an upload: PUT the payload to `url` with `headers`, then publish `"ref": {"upload": id}`."""
        if broker.draining.is_set():
            raise Draining()
        view = await broker.topics.view(topic)
        view.check_is_published_to()
        stored = view.runtime.topic
        wanted = await parse_body(request, UploadRequest)
        path = f"/v1/topics/{topic}/uploads"
        limit_bytes = broker.settings.max_upload_bytes
        if wanted.size > limit_bytes:
            raise BodyTooLarge(f"an upload has at most {limit_bytes} bytes", limit_bytes, topic)
        upload = broker.uploads.issue(stored, wanted.size, wanted.sha256, member=view.member)
        left_seconds = max((upload.expires_us - broker.clock.now_us()) // 1_000_000, 1)
        presigned = None
        # An address has the name of the topic group in it. Not every publisher to a member may know that.
        if principal_of(request).sees(stored):
            presigned = await broker.store.presign_create(
                keys.upload(stored, upload.id),
                size_bytes=wanted.size,
                sha256=wanted.sha256,
                expires_seconds=presigned_seconds(request, broker.clock, left_seconds),
            )
        answer = {
            "upload": upload.id,
            "url": presigned.url if presigned else f"{str(request.base_url).rstrip('/')}{path}/{upload.id}",
            "method": "PUT",
            "headers": dict(presigned.headers) if presigned else {},
            "expires": rfc3339(upload.expires_us),
            "value_type": view.state.config.value_type,
        }
        return json_response(answer, status=201)

    return router
