"""`GET /openapi.json`. The document is made at the first request, in a thread, and kept as bytes."""

import asyncio
from collections.abc import Sequence

import orjson
from fastapi import APIRouter
from fastapi.responses import Response
from starlette.routing import BaseRoute

from mq.forms.formats import JSON
from mq.http.routers import new_router
from mq.http.routes import OPENAPI


def openapi_router(served: Sequence[BaseRoute]) -> APIRouter:
    """The endpoint, for an app with these routes; others may join them until the first request."""
    router, making = new_router("docs"), asyncio.Lock()
    made: list[bytes] = []

    @router.head(OPENAPI.template, include_in_schema=False)
    @router.serves(OPENAPI, include_in_schema=False)
    async def openapi() -> Response:
        """The document."""
        async with making:
            if not made:
                made.append(await asyncio.to_thread(_written, served))
        return Response(made[0], media_type=JSON)

    return router


def _written(served: Sequence[BaseRoute]) -> bytes:
    # A broker starts without the models of answers.
    from mq.http.openapi.document import document_of

    return orjson.dumps(document_of(served))
