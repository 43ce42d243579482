"""Uploads payloads straight to the store, to publish them by reference."""

import hashlib
import os
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any, BinaryIO

import anyio.to_thread
import orjson

from braidmq.errors import InvalidArgument, NotABroker, error_of
from braidmq.names import topic_path
from braidmq.publish.encoding.outgoing import Upload
from braidmq.transport.addresses import put_target
from braidmq.transport.problems import bare_problem, json_of, refusal
from braidmq.transport.transport import Call, Transport, Try

_CHUNK_BYTES = 1024 * 1024


class Uploader:
    """Asks a broker for an upload address and puts the payload there."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def upload(self, topic: str, data: bytes | BinaryIO, *, is_text: bool = False) -> Upload:
        """Store a payload for a topic, from bytes or from a seekable binary file (from its current position on).

        The file is read twice, first for its checksum; neither pass holds more than a chunk in memory. A failed attempt
        is repeated at a new address. Its remains at the old one are deleted after a day. With `is_text` the bytes are
        text, which is a JSON string to a topic of JSON.
        """
        payload = await anyio.to_thread.run_sync(_Payload, data)
        as_json = None
        if is_text:
            assert isinstance(data, bytes)
            as_json = orjson.dumps(data.decode())
        return await self._transport.repeat(lambda attempt: self._attempt(topic, payload, as_json, attempt))

    async def _attempt(self, topic: str, payload: "_Payload", as_json: bytes | None, attempt: Try) -> Upload:
        """`as_json` replaces the payload for a topic of JSON. Only the broker's answer shows that it is one."""
        body = orjson.dumps({"size": payload.size_bytes, "sha256": payload.sha256})
        call = Call(
            "POST",
            f"{topic_path(topic)}/uploads",
            content=body,
            headers={"content-type": "application/json"},
        )
        target = json_of(await self._transport.once(call, attempt))
        if as_json is not None and target.get("value_type") == "json":
            return await self._attempt(topic, _Payload(as_json), None, attempt)
        await self._put(put_target(target["url"], f"{call.target}/{target['upload']}"), target, payload, attempt)
        return Upload(target["upload"], payload.size_bytes, payload.sha256)

    async def _put(self, url: str, target: dict[str, Any], payload: "_Payload", attempt: Try) -> None:
        # Set the length: presigned addresses are bound to it, and the store refuses chunked bodies.
        headers = {**target.get("headers", {}), "content-length": str(payload.size_bytes)}
        call = Call(target.get("method", "PUT"), url, content=payload.chunks, headers=headers)
        response = await self._transport.send(call, attempt)
        if response.is_success:
            return
        failure = refusal(response, publishing=False)
        if isinstance(failure, NotABroker):  # an object store: its errors are no problem documents
            problem = bare_problem(response, retryable=False)
            failure = error_of(problem, publishing=False)
        raise failure


class _Payload:
    """Bytes or a file to upload: its size and checksum, and its chunks, which can be read repeatedly."""

    def __init__(self, data: bytes | BinaryIO) -> None:
        self._file: BinaryIO = BytesIO(data) if isinstance(data, bytes) else data
        if not self._file.seekable():
            raise InvalidArgument("a payload is read twice: give bytes or a seekable binary file")
        self._start = self._file.tell()
        digest = hashlib.sha256()
        while chunk := self._file.read(_CHUNK_BYTES):
            if not isinstance(chunk, bytes):
                raise InvalidArgument("the file is open as text: open it with mode 'rb'")
            digest.update(chunk)
        self.size_bytes = self._file.tell() - self._start
        self.sha256 = digest.hexdigest()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the payload from its start."""
        await anyio.to_thread.run_sync(self._file.seek, self._start, os.SEEK_SET)
        while chunk := await anyio.to_thread.run_sync(self._file.read, _CHUNK_BYTES):
            yield chunk
