"""Bulk loads over plain HTTP, step by step: reserve, write, commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pyarrow as pa

from filer.bulk_load.load_files import LoadFile, as_rows, load_files, slots_of_rows
from filer.bulk_load.load_segment import LoadSegment
from filer.format.schema import OF_BYTES


@dataclass(frozen=True)
class ReservedLoad:
    """A reserved bulk load of a topic with binary keys and values."""

    topic: str
    answer: dict[str, Any]

    @property
    def path(self) -> str:
        return f"/v1/topics/{self.topic}/loads/{self.answer['load']}"

    @property
    def segments(self) -> list[LoadSegment]:
        time = datetime.fromisoformat(self.answer["timestamp"])
        time_us = (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        return [
            LoadSegment(self.answer["load"], each["segment"], *each["range"], time_us)
            for each in self.answer["segments"]
        ]

    def files(self, rows: pa.Table, *, file_bytes: int = 1 << 20) -> list[LoadFile]:
        """The messages divided by slots, in files."""
        slots = slots_of_rows(as_rows(rows, OF_BYTES), 0)
        return [
            file
            for segment in self.segments
            for file in load_files(
                [rows.filter(pa.array((slots >= segment.start_slot) & (slots < segment.stop_slot)))],
                segment,
                file_bytes=file_bytes,
            )
        ]


async def reserve(client: httpx.AsyncClient, topic: str, segments: int = 2, load: str | None = None) -> ReservedLoad:
    body = {"segments": segments} | ({} if load is None else {"load": load})
    answer = await client.post(f"/v1/topics/{topic}/loads", json=body)
    assert answer.status_code in (200, 201), answer.text
    return ReservedLoad(topic, answer.json())


async def upload_urls(
    client: httpx.AsyncClient, load: ReservedLoad, files: Sequence[LoadFile], **more: Any
) -> list[Any]:
    asked = [{"segment": f.segment, "base_offset": f.base_offset, "size": f.data.size} for f in files]
    answer = await client.post(f"{load.path}/urls", json={"files": asked, **more})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["files"])


async def put_files(client: httpx.AsyncClient, load: ReservedLoad, files: Sequence[LoadFile]) -> list[httpx.Response]:
    """Put files with only the information in the answer, as any client would."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as anybody:
        return [
            await anybody.put(target["url"], content=file.data.to_pybytes(), headers=target["headers"])
            for file, target in zip(files, await upload_urls(client, load, files), strict=True)
        ]


def claims(files: Sequence[LoadFile]) -> dict[str, Any]:
    """The body of a commit."""
    return {
        "files": [
            {"segment": f.segment, "base_offset": f.base_offset, "count": f.count, "size": f.data.size} for f in files
        ]
    }


async def commit(client: httpx.AsyncClient, load: ReservedLoad, files: Sequence[LoadFile]) -> httpx.Response:
    return await client.post(load.path, json=claims(files))


async def load_rows(
    client: httpx.AsyncClient, topic: str, rows: pa.Table, *, segments: int = 2, load: str | None = None
) -> dict[str, Any]:
    """Reserve, write and commit. Returns the answer of the commit."""
    reserved = await reserve(client, topic, segments, load)
    files = reserved.files(rows)
    for put in await put_files(client, reserved, files):
        assert put.status_code in (200, 201), put.text
    answer = await commit(client, reserved, files)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def numbered(start: int, stop: int, *, keys: int = 10, by: str = "") -> pa.Table:
    """Numbered messages under `keys` keys."""
    return pa.table(
        {
            "key": [b"key-%d" % (number % keys) for number in range(start, stop)],
            "value": [f"{by}{number}".encode() for number in range(start, stop)],
        }
    )


async def read_all(client: httpx.AsyncClient, topic: str) -> list[dict[str, Any]]:
    """All messages by browsing, in reading order."""
    found: list[dict[str, Any]] = []
    marker = ""
    while True:
        query = f"?limit=10000&marker={marker}" if marker else "?limit=10000"
        page = (await client.get(f"/v1/topics/{topic}/messages{query}")).raise_for_status().json()
        if not page["messages"]:
            return found
        found += page["messages"]
        marker = page["marker"]


def by_key(messages: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The values of each key in reading order."""
    values: dict[str, list[str]] = {}
    for message in messages:
        values.setdefault(message["key"], []).append(message["value"])
    return values
