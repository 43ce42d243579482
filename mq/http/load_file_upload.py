"""`PUT /v1/topics/{topic}/loads/{load}/files/{segment}/{base}`: where files of a load go without presigned URLs."""

import hashlib
import re
from collections.abc import AsyncIterator

import orjson

from filer import keys
from filer.errors import InvalidInput, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.keys import FileName
from filer.load_check import FileClaim
from mq.bodies.intake import Receive
from mq.broker import Broker
from mq.errors import Draining, NameTaken, NotFound, Repeatable
from mq.http.payload_upload import chunks_of
from mq.http.publish import Scope

_DIGITS = re.compile(rb"[0-9]{1,16}\Z")
_COMPARED_BYTES = 4 * 1024 * 1024


class LoadFileUpload:
    """Takes files of loads in, chunk by chunk, straight to the store: none is ever held whole in memory."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(
        self, scope: Scope, receive: Receive, topic: str, load_id: str, segment: int, base_offset: int
    ) -> bytes:
        """Store the body as that file of a load; the answer's JSON. Raises what `problem_of` knows.

        The file appears whole or not at all. The very bytes that are there already are taken as if they had just come,
        so that a put whose answer was lost can be sent again; `NameTaken` is raised for others.
        """
        broker = self._broker
        if broker.draining.is_set():
            raise Draining()
        payloads = broker.payloads
        if payloads is None:
            raise NotFound("load", "files of a load go to the URL that POST …/urls gave, on the object store itself")
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if not _DIGITS.match(declared):
            raise InvalidInput("a file of a load is sent with its Content-Length")
        file = FileClaim(segment, base_offset, 0, int(declared))
        _, (place,) = await broker.loads.places(topic, load_id, [file], look=False)
        key = keys.segment_file(topic, segment, FileName(base_offset))
        body = _Counted(chunks_of(receive))
        try:
            await payloads.create_from_stream(place.key, body, size_bytes=file.size_bytes, sha256=None)
        except ObjectExists:
            await self._compare(key, body, file.size_bytes)
        info = await broker.store.head(key)
        return orjson.dumps(
            {"segment": segment, "base_offset": base_offset, "size": info.size_bytes, "etag": info.etag}
        )

    async def _compare(self, key: str, body: "_Counted", size_bytes: int) -> None:
        """Raises `NameTaken` unless the file that is there has the bytes of the body."""
        if body.taken_bytes:
            # It has come to be there meanwhile, and what was read of the body is gone: sent again it is compared.
            raise Repeatable(OutcomeUnknown(f"{key}: another put of it was under way; send it again"))
        store, stored, sent = self._broker.store, hashlib.sha256(), hashlib.sha256()
        async for chunk in body:
            sent.update(chunk)
        taken = NameTaken(f"{key}: there is a file of that name with other bytes: a file of a load never changes")
        try:
            if (await store.head(key)).size_bytes != size_bytes:
                raise taken
            for start in range(0, size_bytes, _COMPARED_BYTES):
                stored.update((await store.get(key, start=start, stop=start + _COMPARED_BYTES)).data)
        except ObjectNotFound as error:
            raise taken from error
        if stored.digest() != sent.digest():
            raise taken


class _Counted:
    """The chunks of a body, once, and how many bytes of them have been taken."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.taken_bytes = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        self.taken_bytes += len(chunk)
        return chunk
