"""`POST /v1/topics/{topic}/subscribe/tickets`, `…/socket/tickets`: tickets for streams and sockets of web pages."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from filer.errors import InvalidInput
from filer.times import rfc3339
from mq.broker import Broker
from mq.http.principals import principal_of
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import SOCKET_TICKET, SUBSCRIBE_TICKET
from mq.http.tickets import TICKET_SECONDS, Tickets
from mq.security.authorization import authorization_of


def tickets_router(broker: Broker, tickets: Tickets) -> APIRouter:
    """The endpoints that give tickets. A client that may open the stream or the socket may ask for one."""
    router = new_router("tickets")

    def given(request: Request) -> Response:
        authorization = authorization_of(request.scope["headers"])
        if broker.access.credentials is None or authorization is None:
            raise InvalidInput("a ticket stands for a token, and this request has none: open the stream without one")
        path = request.scope["path"].removesuffix("/tickets")
        ticket = tickets.issue(path, principal_of(request).name, authorization)
        until_us = broker.clock.now_us() + int(TICKET_SECONDS * 1_000_000)
        response = json_response({"ticket": ticket, "expires_at": rfc3339(until_us)}, status=201)
        response.headers["cache-control"] = "no-store"
        return response

    @router.serves(SUBSCRIBE_TICKET)
    async def for_stream(request: Request, topic: str) -> Response:
        """Give a ticket for one `GET …/subscribe?ticket=…`, for a client that can send no header, as `EventSource`."""
        await broker.topics.view(topic)
        return given(request)

    @router.serves(SOCKET_TICKET)
    async def for_socket(request: Request, topic: str) -> Response:
        """Give a ticket for one `GET …/socket?ticket=…`, for a client that can send no header, as a browser."""
        await broker.topics.view(topic)
        return given(request)

    return router
