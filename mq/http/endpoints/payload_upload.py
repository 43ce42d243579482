"""`PUT /v1/topics/{topic}/uploads/{id}`: takes payloads if the client has no address of the store itself."""

import re
from collections.abc import AsyncIterator, Iterable

import orjson
from starlette.types import Receive, Scope

from filer import keys
from filer.errors import ObjectExists
from mq.base.errors import Conflict, Draining, InvalidReference, NotFound
from mq.bodies.intake import ClientGone
from mq.broker import Broker
from mq.http.principals import PRINCIPAL
from mq.http.reply import Reply

FIRST_BYTES = 16 * 1024
"""So much of a body, or all of a smaller one, arrives before the upload takes a connection to the store."""
_DIGITS = re.compile(rb"[0-9]{1,16}\Z")


class PayloadUpload:
    """Writes payloads to the store chunk by chunk. No payload is ever whole in memory."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, topic: str, upload_id: str) -> Reply:
        """Store the body under an issued id. Raises errors that `problem_of` can answer.

        The object appears whole or not at all, and is written once. After an upload that broke off, its id can be used
        again.
        """
        broker = self._broker
        if broker.draining.is_set():
            raise Draining()
        view = await broker.topics.view(topic)
        stored_by = view.runtime.topic
        payloads = broker.payloads
        if payloads is None or (broker.store.traits.presigns and scope[PRINCIPAL].sees(stored_by)):
            raise NotFound("upload", "payloads go to the URL that POST …/uploads gave, on the object store itself")
        upload = broker.uploads.parse(stored_by, upload_id, member=view.member)
        if broker.clock.now_us() > upload.expires_us:
            raise InvalidReference(f"upload {upload_id!r} has expired: ask for a new one")
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if _DIGITS.match(declared) and int(declared) != upload.size_bytes:
            raise InvalidReference(
                f"the upload was declared with {upload.size_bytes} bytes, the body has {int(declared)}"
            )
        key = keys.upload(stored_by, upload_id)
        body = chunks_of(receive)
        begin = await begin_of(body)
        try:
            with broker.upload_streams.counted(scope[PRINCIPAL].name):
                sha256 = await payloads.create_from_stream(
                    key, _joined(begin, body), size_bytes=upload.size_bytes, sha256=upload.sha256
                )
        except ObjectExists as error:
            raise Conflict(
                "upload-exists", f"upload {upload_id!r} has been written already, and never changes"
            ) from error
        info = await broker.store.head(key)
        stored = {"upload": upload_id, "size": info.size_bytes, "etag": info.etag, "sha256": sha256}
        return Reply(orjson.dumps(stored), 201)


async def chunks_of(receive: Receive) -> AsyncIterator[bytes]:
    """The chunks of a request's body; raises `ClientGone`."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def begin_of(body: AsyncIterator[bytes]) -> list[bytes]:
    """The first chunks, until they have `FIRST_BYTES` or all have come: at most that and one chunk more."""
    begin: list[bytes] = []
    size_bytes = 0
    async for chunk in body:
        begin.append(chunk)
        size_bytes += len(chunk)
        if size_bytes >= FIRST_BYTES:
            break
    return begin


async def _joined(begin: Iterable[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in begin:
        yield chunk
    async for chunk in rest:
        yield chunk
