"""What a load asks of the brokers: segments, places for files, the commit (DESIGN.md §10a)."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

from filer.load_files import LoadFile
from filer.load_segment import LoadSegment
from filer.topic_config import TopicConfig
from pipeline.errors import JobFailed
from pipeline.patience import Patience

CALL_SECONDS = 600.0
"""A commit is answered when every file has been looked at."""
_AGAIN = frozenset({429, 502, 503, 504})
_TAKEN = 412
_MD5 = re.compile(r"[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True)
class Reservation:
    """The segments that were reserved for a load, in the order of their slots; `prefixes` are where their files go."""

    load: str
    segments: tuple[LoadSegment, ...]
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a load that is on the store, as the commit names it."""

    segment: int
    base_offset: int
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LoadCalls:
    """The calls of one topic's loads, to brokers that are given by their addresses, one after the other."""

    urls: tuple[str, ...]
    topic: str

    def reserve(self, config: TopicConfig, segments: int, load: str | None) -> Reservation:
        """Reserve segments, or find those that the load of that name has. Raises `JobFailed`."""
        asked = {"segments": segments} if load is None else {"segments": segments, "load": load}
        answer = self._post("", asked)
        timestamp = datetime.fromisoformat(answer["timestamp"])
        timestamp_us = int(timestamp.timestamp()) * 1_000_000 + timestamp.microsecond
        reserved = tuple(
            LoadSegment(
                answer["load"],
                each["segment"],
                start_slot=each["range"][0],
                stop_slot=each["range"][1],
                timestamp_us=timestamp_us,
                key_type=config.key_type,
                value_type=config.value_type,
            )
            for each in answer["segments"]
        )
        return Reservation(answer["load"], reserved, tuple(each["prefix"] for each in answer["segments"]))

    def committed(self, load: str) -> dict[str, Any] | None:
        """What the commit of that load answered; None where there was none. Raises `JobFailed`."""
        response = self._call("GET", f"/{load}", None)
        answer: dict[str, Any] = response.json() if response.status_code == httpx.codes.OK else {}
        return answer if answer.get("state") == "committed" else None

    def put(self, load: str, file: LoadFile) -> StoredFile:
        """Write a file where the broker says, once; one that is there already must be this very one.

        A load's files are the same bytes whoever writes them. So stopping anywhere is safe: a file is there whole or
        not at all, and whoever runs the task again finds it. Raises `JobFailed` where another one has its name.
        """
        data = memoryview(file.data)
        named = {"segment": file.segment, "base_offset": file.base_offset, "size": data.nbytes}
        there = self._place(load, named)["there"] or self._upload(load, named, data.tobytes())
        if there is not None and not _is_same(there, data):
            raise JobFailed(
                f"load {load}: segment {file.segment} has another file at offset {file.base_offset}: what is read is "
                "not what was read when this load was begun; begin another one"
            )
        return StoredFile(file.segment, file.base_offset, file.count, data.nbytes)

    def _upload(self, load: str, named: dict[str, int], data: bytes) -> dict[str, Any] | None:
        """None once it is there by this call; else what is there."""
        patience = Patience()
        while True:
            place = self._place(load, named)
            if place["there"] is not None:
                # An earlier try of this very call, whose answer was lost, or another one of this task.
                found: dict[str, Any] = place["there"]
                return found
            try:
                response = httpx.put(
                    place["url"], content=data, headers=place["headers"], timeout=CALL_SECONDS, trust_env=False
                )
            except httpx.TransportError as error:
                patience.wait(f"load {load}: {error}")
                continue
            if response.is_success:
                return None
            if response.status_code != _TAKEN and not _is_passing(response):
                raise JobFailed(f"load {load}: {_detail(response)}")
            patience.wait(f"load {load}: {_detail(response)}")

    def _place(self, load: str, named: dict[str, int]) -> dict[str, Any]:
        answer = self._post(f"/{load}/urls", {"files": [named], "look": True})
        place: dict[str, Any] = answer["files"][0]
        return place

    def commit(self, load: str, files: Sequence[StoredFile]) -> dict[str, Any]:
        """Have the files checked and adopted; the same answer when repeated. Raises `JobFailed`."""
        named = [
            {"segment": each.segment, "base_offset": each.base_offset, "count": each.count, "size": each.size_bytes}
            for each in files
        ]
        return self._post(f"/{load}", {"files": named})

    def abandon(self, load: str) -> None:
        """Give the load up; one that is not there any more is no error."""
        self._call("DELETE", f"/{load}", None)

    def _post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        response = self._call("POST", path, document)
        if not response.is_success:
            raise JobFailed(_detail(response))
        answer: dict[str, Any] = response.json()
        return answer

    def _call(self, method: str, path: str, document: dict[str, Any] | None) -> httpx.Response:
        """The answer of a broker that has one; each of these calls may be repeated. Raises `JobFailed`."""
        patience = Patience()
        while True:
            for url in self.urls:
                try:
                    address = f"{url}/v1/topics/{self.topic}/loads{path}"
                    response = httpx.request(method, address, json=document, timeout=CALL_SECONDS, trust_env=False)
                except httpx.TransportError as error:
                    failure = f"{url}: {error}"
                    continue
                if response.status_code not in _AGAIN:
                    return response
                failure = _detail(response)
            patience.wait(failure)


def _is_same(there: dict[str, Any], data: memoryview) -> bool:
    """Whether what is there has the size and, where its ETag is an MD5, the bytes."""
    etag = there["etag"].strip('"')
    is_alike = not _MD5.match(etag) or hashlib.md5(data, usedforsecurity=False).hexdigest() == etag
    return bool(there["size"] == data.nbytes and is_alike)


def _is_passing(response: httpx.Response) -> bool:
    """Whether the same again may succeed: a broker's status says so, an object store's 409 is a race of two puts."""
    is_store = not response.headers.get("content-type", "").startswith("application/problem+json")
    return response.status_code in _AGAIN or response.status_code >= 500 or (is_store and response.status_code == 409)


def _detail(response: httpx.Response) -> str:
    """What a problem document says, or what else came."""
    try:
        document = response.json()
        return str(document["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{response.request.url.copy_with(query=None)}: HTTP {response.status_code}"
