"""`GET /v1/topics/{topic}/verification`: checks every byte of a topic at the broker, and reports as it goes.

The broker reads, and not the client by presigned addresses: only the broker knows which objects count and which are
missing between them, a directory has no such addresses, and the check stays one piece of code.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, get_args

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from filer.errors import BraidError
from filer.keys import check_name
from filer.verification.verdict import Condition, Verdict
from mq.base.errors import Draining, repeatable
from mq.broker import Broker
from mq.http.principals import check_members, principal_of
from mq.http.problems import problem_of
from mq.http.reply import PacedStream
from mq.http.routers import new_router
from mq.http.routes import VERIFY_CLUSTER, VERIFY_TOPIC
from mq.maintenance.verifications import Verification

PROGRESS_SECONDS = 1.0
_NDJSON = "application/x-ndjson"


def verification_router(broker: Broker) -> APIRouter:
    """The endpoints that check the stored objects."""
    router = new_router("verification")

    @router.serves(VERIFY_TOPIC)
    async def verify_topic(request: Request, topic: str) -> Response:
        """Check every byte of a topic. Each second, and for each object that is wrong, a line says what was found."""
        # Its lines name objects of all topics of a group.
        await check_members(broker, principal_of(request), topic, "observe")
        broker.verifications.check()
        return _answer(broker, await broker.verifications.of_topic(check_name(topic)))

    @router.serves(VERIFY_CLUSTER)
    async def verify_cluster() -> Response:
        """Check the records of the cluster; lines as those of a topic."""
        broker.verifications.check()
        return _answer(broker, broker.verifications.of_cluster())

    return router


def _answer(broker: Broker, verification: Verification) -> Response:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return PacedStream(_lines(broker, verification), headers, _NDJSON, broker.turns.others)


async def _lines(broker: Broker, verification: Verification) -> AsyncGenerator[bytes, None]:
    """The lines of the answer. The last one has `is_complete`, or a `problem`; without either it is not whole."""
    report = _Report(verification)
    with broker.verifications.counted():
        try:
            async with aclosing(_in_time(verification.verdicts)) as verdicts:
                async for verdict in verdicts:
                    if broker.draining.is_set():
                        raise Draining("this broker is shutting down: check through another, or when it is back")
                    if verdict is None:
                        yield report.line()
                        continue
                    report.add(verdict)
                    if not verdict.is_sound:
                        found = {"key": verdict.key, "condition": verdict.condition, "why": verdict.why}
                        yield report.line(found=found)
            yield report.line(is_complete=True)
        except BraidError as error:
            yield report.line(problem=orjson.loads(problem_of(repeatable(error)).body()))


class _Report:
    """The findings so far."""

    def __init__(self, verification: Verification) -> None:
        self._verification = verification
        self._counts: Counter[str] = Counter()
        self._at = ""

    def add(self, verdict: Verdict) -> None:
        """Count one more object."""
        self._counts[verdict.condition] += 1
        self._at = verdict.key

    def line(self, **more: Any) -> bytes:
        """A line with the counts, and more fields."""
        counts = {each.replace(" ", "_"): self._counts[each] for each in get_args(Condition)}
        return orjson.dumps({**counts, "bytes": self._verification.read_bytes, "at": self._at, **more}) + b"\n"


async def _in_time(verdicts: AsyncGenerator[Verdict, None]) -> AsyncGenerator[Verdict | None, None]:
    """The verdicts, and None each `PROGRESS_SECONDS`. Closing this ends the check that is under way."""
    loop = asyncio.get_running_loop()
    told_seconds = loop.time()
    coming: asyncio.Task[Verdict | None] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(_next(verdicts))
            await asyncio.wait([coming], timeout=max(told_seconds + PROGRESS_SECONDS - loop.time(), 0))
            if loop.time() - told_seconds >= PROGRESS_SECONDS:
                told_seconds = loop.time()
                yield None
            if coming.done():
                ended, coming = coming, None
                try:
                    verdict = ended.result()
                finally:
                    del ended  # see `end_tasks`
                if verdict is None:
                    return
                yield verdict
    finally:
        if coming is not None:
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming
        await verdicts.aclose()


async def _next(verdicts: AsyncGenerator[Verdict, None]) -> Verdict | None:
    return await anext(verdicts, None)
