"""`PUT /v1/topics/{topic}/uploads/{id}`: where payloads go when the store has no presigned URLs."""

import re
from collections.abc import AsyncIterator

import orjson

from filer import keys
from filer.errors import ObjectExists
from mq.bodies.intake import ClientGone, Receive
from mq.broker import Broker
from mq.errors import Conflict, Draining, InvalidReference, NotFound
from mq.http.publish import Scope

_DIGITS = re.compile(rb"[0-9]{1,16}\Z")


class PayloadUpload:
    """Takes payloads in, chunk by chunk, straight to the store: none is ever held whole in memory."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, topic: str, upload_id: str) -> bytes:
        """Store the body under an issued id; the answer's JSON. Raises what `problem_of` knows.

        The object appears whole or not at all, and only once: an upload broken off leaves its id free to try again.
        """
        broker = self._broker
        if broker.draining.is_set():
            raise Draining()
        await broker.topic(topic)
        payloads = broker.payloads
        if payloads is None:
            raise NotFound("upload", "payloads go to the URL that POST …/uploads gave, on the object store itself")
        upload = broker.uploads.parse(topic, upload_id)
        if broker.clock.now_us() > upload.expires_us:
            raise InvalidReference(f"upload {upload_id!r} has expired: ask for a new one")
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if _DIGITS.match(declared) and int(declared) != upload.size_bytes:
            raise InvalidReference(
                f"the upload was declared with {upload.size_bytes} bytes, the body has {int(declared)}"
            )
        key = keys.upload(topic, upload_id)
        try:
            sha256 = await payloads.create_from_stream(
                key, chunks_of(receive), size_bytes=upload.size_bytes, sha256=upload.sha256
            )
        except ObjectExists as error:
            raise Conflict(
                "upload-exists", f"upload {upload_id!r} has been written already, and never changes"
            ) from error
        info = await broker.store.head(key)
        return orjson.dumps({"upload": upload_id, "size": info.size_bytes, "etag": info.etag, "sha256": sha256})


async def chunks_of(receive: Receive) -> AsyncIterator[bytes]:
    """The chunks of a request's body; raises `ClientGone`."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        yield message.get("body", b"")
        more = message.get("more_body", False)
