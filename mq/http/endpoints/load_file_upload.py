"""`PUT /v1/topics/{topic}/loads/{load}/files/{segment}/{base}`: takes files of bulk loads without presigned URLs."""

import hashlib
import re
from collections.abc import AsyncIterator

import orjson
from starlette.types import Receive, Scope

from filer import keys
from filer.bulk_load.load_check import FileClaim
from filer.errors import InvalidInput, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.keys import FileName
from mq.base.errors import Draining, NameTaken, NotFound, Repeatable
from mq.broker import Broker
from mq.http.endpoints.payload_upload import chunks_of
from mq.http.reply import Reply

_DIGITS = re.compile(rb"[0-9]{1,16}\Z")
_COMPARED_BYTES = 4 * 1024 * 1024


class LoadFileUpload:
    """Writes files of bulk loads to the store chunk by chunk. No file is ever whole in memory."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(
        self, scope: Scope, receive: Receive, topic: str, load_id: str, segment: int, base_offset: int
    ) -> Reply:
        """Store the body as that file of a bulk load. Raises errors that `problem_of` can answer.

        The file appears whole or not at all. If the file exists with the same bytes, the answer is the same. So a put
        whose answer was lost can be repeated. Raises `NameTaken` if it exists with other bytes.
        """
        broker = self._broker
        if broker.draining.is_set():
            raise Draining()
        payloads = broker.payloads
        if payloads is None or broker.store.traits.presigns:
            raise NotFound("load", "files of a load go to the URL that POST …/urls gave, on the object store itself")
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if not _DIGITS.match(declared):
            raise InvalidInput("a file of a load is sent with its Content-Length")
        file = FileClaim(segment, base_offset, 0, int(declared))
        _, (target,) = await broker.loads.file_targets(topic, load_id, [file], look=False)
        key = keys.segment_file(topic, segment, FileName(base_offset))
        body = _Counted(chunks_of(receive))
        try:
            await payloads.create_from_stream(target.key, body, size_bytes=file.size_bytes, sha256=None)
        except ObjectExists:
            await self._compare(key, body, file.size_bytes)
        info = await broker.store.head(key)
        stored = {"segment": segment, "base_offset": base_offset, "size": info.size_bytes, "etag": info.etag}
        return Reply(orjson.dumps(stored), 201)

    async def _compare(self, key: str, body: "_Counted", size_bytes: int) -> None:
        """Raise `NameTaken` unless the file that exists has the bytes of the body."""
        if body.taken_bytes:
            # The file was created while the body arrived, and the chunks read so far are gone. A repeat is compared.
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
    """The chunks of a body, to be read once, and how many bytes of them have been read."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.taken_bytes = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        self.taken_bytes += len(chunk)
        return chunk
