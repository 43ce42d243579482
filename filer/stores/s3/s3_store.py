"""A store in a bucket of S3, or of any service that speaks its protocol and honours conditional puts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from filer.clock import Clock
from filer.errors import (
    EtagMismatch,
    InvalidInput,
    ObjectExists,
    OutcomeUnknown,
    StoreRefused,
)
from filer.stores.byte_range import resolve_range
from filer.stores.exact_stream import ExactStream
from filer.stores.object_keys import check_folder, check_key, check_prefix
from filer.stores.s3.s3_body import Body
from filer.stores.s3.s3_checksums import PutChecksums
from filer.stores.s3.s3_connection import S3Connection
from filer.stores.s3.s3_errors import (
    INVALID_RANGE,
    NOT_FOUND,
    PRECONDITION_FAILED,
    code_of,
    explain_client_error,
    explain_connection_error,
    status_of,
)
from filer.stores.s3.s3_resending import first_answer
from filer.stores.s3.s3_settings import S3Settings
from filer.stores.s3.s3_streaming import S3Streaming, checked_chunks
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo, PresignedRequest, StoreTraits
from filer.stores.store_time import StoreTime
from filer.times import microseconds

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client
    from types_aiobotocore_s3.type_defs import GetObjectOutputTypeDef

DELETE_PAGE = 1000
LIST_PAGE = 1000
LARGEST_PUT_BYTES = 5 * 1024**3
INLINE_BYTES = 64 * 1024
"""A checksum of this many bytes takes less time than a change of threads."""
DATE_RESOLUTION_US = 1_000_000

WRITER = "braidmq-writer"
"""The metadata that names a put and its writer. By it the writer recognises its own put."""
ONCE_SECONDS = 10.0
"""A write that is never sent again is given up after this time: its caller then reads what came of it."""
SLOWEST_BYTES_PER_SECOND = 1024 * 1024
"""A body may come this slowly before its connection counts as silent."""
R = TypeVar("R")

TIME_KEY = "cluster/cluster.json"
"""The object to ask for when only the time of the answer is wanted; it need not exist."""


class S3Store:
    """The objects of one bucket below one prefix. It connects at the first call.

    The HTTP client sends every request once: if it repeated a put without our knowledge, a success would look like
    "exists". Reads that have no answer for a while are sent again. So are puts of a named writer, which can distinguish
    its own success from another's (`s3_resending`). Every request has a time-out of its own, since those of the HTTP
    client do not fire in every case.
    """

    def __init__(self, settings: S3Settings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._traits = StoreTraits(
            puts_are_billed=True, puts_at_once=64, presigns=True, streams_at_once=settings.pool_size
        )
        self._time = StoreTime(resolution_us=DATE_RESOLUTION_US)
        self._checksums = PutChecksums()
        self._connection = S3Connection(settings, on_date=self._record_date)
        self._last_date: tuple[str, int] = ("", 0)
        self._streaming: S3Streaming | None = None

    @property
    def traits(self) -> StoreTraits:
        """A put costs money, and spends most of its time waiting for the answer."""
        return self._traits

    @property
    def time(self) -> StoreTime:
        """The time by the `Date` of each answer, in whole seconds."""
        return self._time

    async def tell_time(self) -> int:
        """As `Store.tell_time`, by the answer to a HEAD. Raises `OutcomeUnknown` if it has no `Date`."""
        async with self._request(TIME_KEY):
            try:
                answer = await self._answer_to(
                    lambda client: client.head_object(Bucket=self._settings.bucket, Key=self._name(TIME_KEY)), TIME_KEY
                )
                headers: Mapping[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
            except ClientError as error:
                if status_of(error) != NOT_FOUND:
                    raise
                headers = error.response["ResponseMetadata"]["HTTPHeaders"]
        told_us = self._record_date(headers.get("date", ""))
        if told_us is None:
            raise OutcomeUnknown("the store's answer has no Date: it does not tell its time")
        return told_us

    def _record_date(self, date: str) -> int | None:
        """Record the `Date` of an answer; None if it is no time."""
        if self._last_date[0] != date:
            try:
                self._last_date = (date, microseconds(parsedate_to_datetime(date)))
            except (TypeError, ValueError):
                return None
        self._time.record(self._last_date[1])
        return self._last_date[1]

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`, by `If-None-Match: *`."""
        name = self._name(key)
        contents = _as_bytes(await asyncio.get_running_loop().run_in_executor(None, data) if callable(data) else data)
        wanted: dict[str, Any] = {"Key": name, "IfNoneMatch": "*", "Metadata": metadata or {}}

        async def put(client: S3Client) -> None:
            await self._put(client, contents, wanted)

        async with self._request(key) as client:
            try:
                if metadata and WRITER in metadata:
                    await self._answer_to(put, key, sent_bytes=len(contents))
                else:
                    # Never sent again: the writer could not tell its own success from another's.
                    async with self._time_for_one(len(contents)):
                        await put(client)
            except ClientError as error:
                if status_of(error) == PRECONDITION_FAILED:
                    raise ObjectExists(f"{key} exists already") from None
                raise

    async def create_from_stream(
        self, key: str, chunks: AsyncIterator[bytes], *, size_bytes: int, sha256: str | None
    ) -> str:
        """As `StreamingStore.create_from_stream`, by a presigned put: other signatures cover the whole body.

        Stopped anywhere before the last chunk is sent, the store has an incomplete request, of which it keeps nothing.
        """
        check = ExactStream(size_bytes=size_bytes, sha256=sha256)
        expires_seconds = int(self._settings.request_timeout_seconds) + 60
        presigned = await self.presign_create(key, size_bytes=size_bytes, sha256=None, expires_seconds=expires_seconds)
        if self._streaming is None:
            self._streaming = S3Streaming(self._settings, self._connection.ca_file)
        self._record_date(await self._streaming.put(key, presigned, checked_chunks(chunks, check)))
        return check.finish()

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`, by `If-Match`."""
        wanted = {"Key": self._name(key), "IfMatch": f'"{etag}"'}
        async with self._request(key) as client:
            try:
                # Never sent again: the caller has to find out first whether it took effect. So the time-out is short.
                async with self._time_for_one(len(data)):
                    answer = await self._put(client, _as_bytes(data), wanted)
            except ClientError as error:
                if status_of(error) == PRECONDITION_FAILED or code_of(error) == "NoSuchKey":
                    raise EtagMismatch(f"{key} has changed since it was read, or is gone") from None
                raise
        return _unquoted(answer["ETag"])

    async def _put(self, client: S3Client, contents: bytes, wanted: dict[str, Any]) -> Mapping[str, Any]:
        """Put an object, with a checksum if the store takes one.

        A put that the store refused for its checksum has stored nothing, so it is sent once more without the checksum:
        nothing is put twice.
        """
        wanted |= {"Bucket": self._settings.bucket}
        checksum = await self._checksum(contents)
        try:
            answer: Mapping[str, Any] = await client.put_object(**wanted, **checksum, Body=Body(contents))
        except ClientError as error:
            if not checksum or not self._checksums.may_be_why(error):
                raise
            answer = await client.put_object(**wanted, Body=Body(contents))
            self._checksums.sent = False
            return answer
        if checksum:
            self._checksums.note_taken()
        return answer

    async def _checksum(self, contents: bytes) -> dict[str, Any]:
        if len(contents) < INLINE_BYTES:
            return self._checksums.headers_for(contents)
        # On a thread, and without the interpreter's lock: the event loop goes on.
        return await asyncio.get_running_loop().run_in_executor(None, self._checksums.headers_for, contents)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        if stop is not None and (start < 0 or stop <= start):
            # HTTP has no such range. The size of the object resolves it.
            info = await self.head(key)
            first, last = resolve_range(start, stop, info.size_bytes)
            return await self.get(key, start=first, stop=last) if first < last else Fetched(b"", info)
        try:
            return await self._get(key, start, stop)
        except _EmptyRangeError:
            return Fetched(b"", await self.head(key))

    async def _get(self, key: str, start: int, stop: int | None) -> Fetched:
        wanted: dict[str, Any] = {"Bucket": self._settings.bucket, "Key": self._name(key)}
        if start or stop is not None:
            wanted["Range"] = f"bytes={start}" if start < 0 else f"bytes={start}-{'' if stop is None else stop - 1}"
        async with self._request(key):
            try:
                answer = await self._answer_to(lambda client: client.get_object(**wanted), key, discard=_leave_unread)
                async with answer["Body"] as body:
                    data = await body.read()
            except ClientError as error:
                if status_of(error) == INVALID_RANGE:
                    raise _EmptyRangeError() from None
                raise
        etag, modified_us = _unquoted(answer["ETag"]), microseconds(answer["LastModified"])
        if "ContentRange" in answer:
            size_bytes = int(answer["ContentRange"].rpartition("/")[2])
            return Fetched(data, ObjectInfo(key, size_bytes, etag, modified_us))
        # The whole object: the caller asked for it, or the store ignores ranges.
        first, last = resolve_range(start, stop, len(data))
        return Fetched(data[first:last], ObjectInfo(key, len(data), etag, modified_us))

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        name = self._name(key)
        async with self._request(key):
            answer = await self._answer_to(
                lambda client: client.head_object(Bucket=self._settings.bucket, Key=name), key
            )
        return ObjectInfo(key, answer["ContentLength"], _unquoted(answer["ETag"]), microseconds(answer["LastModified"]))

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`, a page of up to 1,000 at a time."""
        given = 0
        page: dict[str, Any] = {} if after is None else {"StartAfter": self._settings.prefix + after}
        async for answer in self._pages(check_prefix(prefix), page, limit):
            for entry in answer.get("Contents", ()):
                key = entry["Key"].removeprefix(self._settings.prefix)
                if "/." in f"/{key}" or given == limit:
                    continue
                given += 1
                modified_us = microseconds(entry["LastModified"])
                yield ObjectInfo(key, entry["Size"], _unquoted(entry["ETag"]), modified_us)
            if given == limit:
                return

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`."""
        folder = self._settings.prefix + check_folder(prefix)
        names = [
            entry["Prefix"].removeprefix(folder).rstrip("/")
            async for answer in self._pages(prefix, {"Delimiter": "/"}, None)
            for entry in answer.get("CommonPrefixes", ())
        ]
        return sorted(name for name in names if not name.startswith("."))

    async def _pages(self, prefix: str, page: dict[str, Any], limit: int | None) -> AsyncIterator[Mapping[str, Any]]:
        page |= {"Bucket": self._settings.bucket, "Prefix": self._settings.prefix + prefix}
        page["MaxKeys"] = LIST_PAGE if limit is None else min(limit, LIST_PAGE)
        while True:
            async with self._request(prefix):
                answer: Mapping[str, Any] = await self._answer_to(lambda client: client.list_objects_v2(**page), prefix)
            yield answer
            if not answer.get("IsTruncated"):
                return
            page["ContinuationToken"] = answer["NextContinuationToken"]

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`, up to 1,000 a request."""
        remaining = iter(keys)
        while page := tuple(itertools.islice(remaining, DELETE_PAGE)):
            objects: Any = [{"Key": self._name(key)} for key in page]
            async with self._request(page[0]) as client:
                answer = await client.delete_objects(
                    Bucket=self._settings.bucket, Delete={"Objects": objects, "Quiet": True}
                )
            _check_deleted(answer.get("Errors", ()))

    async def presign_get(self, key: str, *, expires_seconds: int) -> PresignedRequest | None:
        """A signed GET of the object."""
        return await self._presign("get_object", "GET", key, {}, expires_seconds, {})

    async def presign_create(
        self, key: str, *, size_bytes: int, sha256: str | None, expires_seconds: int
    ) -> PresignedRequest:
        """A signed PUT that binds the length, `If-None-Match: *` and the SHA-256, if given.

        Raises `InvalidInput` if S3 accepts no object of that size in one request.
        """
        if size_bytes > LARGEST_PUT_BYTES:
            raise InvalidInput(f"{size_bytes} bytes are too many: S3 accepts up to 5 GiB in one upload")
        bound: dict[str, Any] = {"ContentLength": size_bytes, "IfNoneMatch": "*"}
        headers = {"Content-Length": str(size_bytes), "If-None-Match": "*"}
        if sha256 is not None:
            bound["ChecksumSHA256"] = _base64_of_hex(sha256)
            headers["x-amz-checksum-sha256"] = bound["ChecksumSHA256"]
        return await self._presign("put_object", "PUT", key, bound, expires_seconds, headers)

    async def _presign(
        self,
        operation: str,
        method: str,
        key: str,
        bound: dict[str, Any],
        expires_seconds: int,
        headers: dict[str, str],
    ) -> PresignedRequest:
        bound |= {"Bucket": self._settings.bucket, "Key": self._name(key)}
        async with self._request(key) as client:
            url = await client.generate_presigned_url(
                operation, Params=bound, ExpiresIn=expires_seconds, HttpMethod=method
            )
        return PresignedRequest(method, url, self._clock.now_us() + expires_seconds * 1_000_000, headers)

    def uri(self, key: str) -> str:
        """`s3://<bucket>/<prefix><key>`."""
        return f"s3://{self._settings.bucket}/{self._name(key)}"

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()
        if self._streaming is not None:
            await self._streaming.close()
            self._streaming = None

    def _name(self, key: str) -> str:
        return self._settings.prefix + check_key(key)

    async def _answer_to(
        self,
        ask: Callable[[S3Client], Awaitable[R]],
        key: str,
        *,
        sent_bytes: int = 0,
        discard: Callable[[R], Awaitable[None]] | None = None,
    ) -> R:
        """The answer to a request that may be served twice."""

        async def send(is_new: bool) -> R:
            return await ask(await self._connection.client(is_new=is_new))

        after_seconds = self._patience_seconds(sent_bytes, self._settings.resend_seconds)
        return await first_answer(send, key, after_seconds=after_seconds, discard=discard)

    def _time_for_one(self, sent_bytes: int) -> asyncio.Timeout:
        """The time-out of a write that is sent only once."""
        return asyncio.timeout(self._patience_seconds(sent_bytes, ONCE_SECONDS))

    def _patience_seconds(self, sent_bytes: int, least_seconds: float) -> float:
        """How long to wait for the answer to a request with that body, which has to arrive first."""
        return least_seconds + sent_bytes / SLOWEST_BYTES_PER_SECOND

    @contextlib.asynccontextmanager
    async def _request(self, key: str) -> AsyncIterator[S3Client]:
        """The client for one request, with a time-out. Turns errors of S3 and the connection into those of a store."""
        what = f"{key!r} in bucket {self._settings.bucket!r}"
        if self._settings.endpoint_url:
            what += f" at {self._settings.endpoint_url}"
        try:
            async with asyncio.timeout(self._settings.request_timeout_seconds):
                yield await self._connection.client()
        except ClientError as error:
            raise explain_client_error(error, what) from error
        except (BotoCoreError, TimeoutError) as error:
            raise explain_connection_error(error, what) from error


class _EmptyRangeError(Exception):
    """The range lies beyond the end of the object."""


async def _leave_unread(answer: GetObjectOutputTypeDef) -> None:
    async with answer["Body"]:
        """Its connection is closed."""


def _as_bytes(data: Data) -> bytes:
    return data if isinstance(data, bytes) else bytes(data)


def _unquoted(etag: str) -> str:
    return etag.strip('"')


def _base64_of_hex(sha256: str) -> str:
    try:
        digest = bytes.fromhex(sha256)
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise InvalidInput(f"{sha256[:100]!r} is not a SHA-256: it has 64 hexadecimal digits")
    return base64.b64encode(digest).decode()


def _check_deleted(errors: Iterable[Mapping[str, Any]]) -> None:
    left = [error for error in errors if error.get("Code") != "NoSuchKey"]
    if not left:
        return
    first = left[0]
    message = f"{len(left)} objects were not deleted, {first.get('Key')!r} first: {first.get('Message')}"
    if first.get("Code") == "AccessDenied":
        raise StoreRefused(f"{message}: the credentials need s3:DeleteObject")
    raise OutcomeUnknown(message)
