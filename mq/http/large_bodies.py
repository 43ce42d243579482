"""Bodies of JSON that name many things: they share a bounded memory from their first byte until the answer."""

import contextlib
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.requests import ClientDisconnect

from mq.base.errors import BodyTooLarge
from mq.bodies.intake import ClientGone, Intake
from mq.broker import Broker
from mq.http.json_body import topic_of


@contextlib.asynccontextmanager
async def large_body(broker: Broker, request: Request, most_bytes: int) -> AsyncIterator[bytes]:
    """A context with the body of a request, of at most so many bytes. The body counts in the shared memory.

    Raises `BodyTooLarge`, and as `Intake.read`.
    """
    topic = topic_of(request.scope)
    length = request.headers.get("content-length")
    with Intake(
        broker.asked,
        most_bytes,
        topic,
        wait=True,
        patience_seconds=broker.deadlines.timeout_seconds,
        too_late=broker.deadlines.nothing_stored,
        arrivals=broker.asked_arrivals,
    ) as intake:
        try:
            body = await intake.read(request.receive, None if length is None else int(length))
        except BodyTooLarge as error:
            told = f"the body is larger than {most_bytes} bytes: send several requests"
            raise BodyTooLarge(told, most_bytes, topic) from error
        except ClientGone as error:
            raise ClientDisconnect from error
        yield body
