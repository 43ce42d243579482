"""What a request with a quota is charged for, once it is known what becomes of it."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from filer.clock import ManualClock
from mq.base.errors import QuotaExceeded
from mq.http.metered import Metered
from mq.limits.quotas import Share
from mq.limits.storage_meter import StorageMeter
from mq.security.grants import Pattern, parse_pattern
from mq.security.policy.limits import Limits


async def _measure(_: Pattern) -> int:
    return 0


class Side:
    """One request after the other, of a principal that may create one topic and store 100 bytes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.meter = StorageMeter(parse_pattern("t"), _measure, self.clock.monotonic_seconds)
        limits = Limits(topics_per_hour=1, storage_bytes=100, storage_topics="t")
        self.share = Share(limits, self.clock.monotonic_seconds, self.meter)

    def metered(
        self, method: str, path: str, body: bytes = b"", *, reserved: int = 0, more_body: bool = False
    ) -> Metered:
        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": more_body}

        async def send(_: Message) -> None:
            pass

        scope: dict[str, Any] = {"type": "http", "method": method, "path": path}
        return Metered(scope, receive, send, self.share, self.clock, reserved=reserved)


@pytest.mark.parametrize(("method", "path", "status", "used_bytes"), [
    ("POST", "/v1/topics/t/messages", 200, 60),
    ("POST", "/v1/topics/t/messages", 422, 0),
    ("POST", "/v1/topics/t/messages", None, 60),
    ("PUT", "/v1/topics/t/loads/l/files/0/0", 200, 60),
    ("PUT", "/v1/topics/t/loads/l/files/0/0", 422, 0),
    ("PUT", "/v1/topics/t/uploads/u", 200, 0),
    ("POST", "/v1/topics/t/uploads", 201, 0),
])  # fmt: skip
async def test_storage_is_charged_for_what_is_stored(
    method: str, path: str, status: int | None, used_bytes: int
) -> None:
    side = Side()
    metered = side.metered(method, path, bytes(60))
    await metered.receive()
    assert side.meter.used_bytes == (0 if "/uploads" in path else 60), "what is on its way counts"
    if status is not None:
        await metered.send({"type": "http.response.start", "status": status, "headers": []})
        assert side.meter.used_bytes == used_bytes, "before the client knows"
        await metered.receive()
    metered.end()
    assert side.meter.used_bytes == used_bytes


async def test_half_a_body_is_not_charged_to_anybodys_storage() -> None:
    side = Side()
    metered = side.metered("POST", "/v1/topics/t/messages", bytes(60), more_body=True)
    await metered.receive()
    metered.end()
    assert side.meter.used_bytes == 0


@pytest.mark.parametrize(("status", "left"), [(201, 0), (200, 1), (422, 1), (None, 1)])
async def test_a_topic_that_was_not_created_is_given_back(status: int | None, left: int) -> None:
    side = Side()
    side.share.reserve_topic()
    metered = side.metered("PUT", "/v1/topics/new", reserved=1)

    async def serve() -> None:
        try:
            if status is None:
                await asyncio.Event().wait()
            await metered.send({"type": "http.response.start", "status": status, "headers": []})
        finally:
            metered.end()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    if status is None:
        task.cancel()
    await asyncio.wait([task])
    for _ in range(left):
        side.share.reserve_topic()
    with pytest.raises(QuotaExceeded):
        side.share.reserve_topic()


async def test_a_topic_that_was_known_and_is_created_all_the_same_is_charged() -> None:
    side = Side()
    await side.metered("PUT", "/v1/topics/t").send({"type": "http.response.start", "status": 201, "headers": []})
    with pytest.raises(QuotaExceeded):
        side.share.reserve_topic()
