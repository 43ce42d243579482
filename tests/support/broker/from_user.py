"""Calls an app in this process as a connection of a user of this machine would."""

from starlette.types import ASGIApp, Receive, Scope, Send

from mq.security.caller import Caller, offer_caller


def from_user(app: ASGIApp, user: int) -> ASGIApp:
    """The app, to which each request comes from that user, at the address that it has."""

    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        offer_caller(scope, Caller(scope["client"][0], user))
        await app(scope, receive, send)

    return called
