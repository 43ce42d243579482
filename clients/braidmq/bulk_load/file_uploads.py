"""Puts the files of a bulk load on the store."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio.to_thread
import pyarrow as pa

import filer.errors
from braidmq.bulk_load.load_calls import load_path, post_json
from braidmq.bulk_load.store_folder import find_store_folder
from braidmq.errors import ConnectionBroken, FileTaken, NotABroker, error_of
from braidmq.transport.addresses import put_target
from braidmq.transport.problems import bare_problem, json_of, refusal
from braidmq.transport.transport import Call, Transport, Try
from filer import keys
from filer.bulk_load.load_files import LoadFile
from filer.keys import FileName
from filer.stores.local.local_store import LocalStore

CONCURRENT_UPLOADS = 4
_CHUNK_BYTES = 256 * 1024
_MD5 = re.compile(r"[0-9a-f]{32}\Z")


class FileUploads:
    """Puts files in the background, a few at a time. The first failure ends all.

    If the store is a directory of this machine, the files are written there. Otherwise they go to the addresses that a
    broker returns.
    """

    def __init__(self, transport: Transport, topic: str, load: str) -> None:
        self._transport, self._topic, self._load = transport, topic, load
        self._path = load_path(topic, load)
        self._folder: LocalStore | None = None
        self._folder_lock = asyncio.Lock()
        self._folder_is_known = False
        self._permits = asyncio.Semaphore(CONCURRENT_UPLOADS)
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> "FileUploads":
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._group.__aexit__(*raised)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            if self._folder is not None:
                await self._folder.close()

    async def start(self, file: LoadFile) -> None:
        """Put a file in the background. This waits while too many files are in memory."""
        await self._permits.acquire()
        self._group.create_task(self._put(file))

    async def _put(self, file: LoadFile) -> None:
        try:
            if (folder := await self._find_folder(file)) is not None:
                await self._write(folder, file)
            else:
                await self._transport.repeat(lambda attempt: self._attempt(file, attempt))
        finally:
            self._permits.release()

    async def _find_folder(self, file: LoadFile) -> LocalStore | None:
        """Return the store's local directory, which is searched for once, at the first file."""
        async with self._folder_lock:
            if not self._folder_is_known:
                target = await self._transport.repeat(lambda attempt: self._target(file, attempt, compare=False))
                key, clock = self._key(file), self._transport.clock
                self._folder = await find_store_folder(target["uri"], key, self._topic, self._load, file.segment, clock)
                self._folder_is_known = True
        return self._folder

    def _key(self, file: LoadFile) -> str:
        return keys.segment_file(self._topic, file.segment, FileName(file.base_offset))

    async def _write(self, folder: LocalStore, file: LoadFile) -> None:
        """Write to the directory. If this stops anywhere, the file is there whole or not at all, as with a put."""
        key = self._key(file)
        try:
            await folder.create(key, memoryview(file.data))
        except filer.errors.ObjectExists:
            if (await folder.get(key, stop=file.data.size + 1)).data != file.data.to_pybytes():
                raise _taken(file) from None
        except filer.errors.StoreError as failure:
            raise ConnectionBroken(f"{folder.uri(key)} cannot be written: {failure}") from failure

    async def _attempt(self, file: LoadFile, attempt: Try) -> None:
        target = await self._target(file, attempt, compare=False)
        headers = {**target.get("headers", {}), "content-length": str(file.data.size)}
        url = put_target(target["url"], f"{self._path}/files/{file.segment}/{file.base_offset}")
        call = Call(target.get("method", "PUT"), url, content=partial(_chunks, file.data), headers=headers)
        response = await self._transport.send(call, attempt)
        if response.is_success:
            return
        failure = refusal(response, publishing=False)
        if isinstance(failure, NotABroker):  # an object store: its errors are no problem documents
            if response.status_code == 412:
                await self._check_same(file, attempt)
                return
            # 409: another put of that name is in progress. Either that one or a repeated one creates the file.
            is_race = response.status_code == 409
            failure = error_of(bare_problem(response, retryable=is_race), publishing=False)
        raise failure

    async def _check_same(self, file: LoadFile, attempt: Try) -> None:
        """Raise `FileTaken` unless the store has this very file, from an earlier run or a put with a lost answer."""
        stored = (await self._target(file, attempt, compare=True)).get("there")
        etag = stored["etag"].strip('"') if stored else ""
        # An ETag is no MD5 if the store encrypts or the file was put in parts. Then comparing sizes must do.
        has_same_hash = await anyio.to_thread.run_sync(_md5, file.data) == etag if _MD5.match(etag) else True
        if not stored or stored["size"] != file.data.size or not has_same_hash:
            raise _taken(file)

    async def _target(self, file: LoadFile, attempt: Try, *, compare: bool) -> Any:
        """Ask where to put a file; with `compare`, also what is stored there."""
        described = {"segment": file.segment, "base_offset": file.base_offset, "size": file.data.size}
        call = post_json(f"{self._path}/urls", {"files": [described], "look": compare})
        return json_of(await self._transport.once(call, attempt))["files"][0]


def _taken(file: LoadFile) -> FileTaken:
    return FileTaken(
        f"{file.name} of segment {file.segment} is there with other bytes: an earlier run of this load had other "
        "messages, another order of messages, or another version; choose another name for the load"
    )


def _md5(data: pa.Buffer) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


async def _chunks(data: pa.Buffer) -> AsyncIterator[bytes]:
    for start in range(0, data.size, _CHUNK_BYTES):
        yield data.slice(start, min(_CHUNK_BYTES, data.size - start)).to_pybytes()
