"""Answers unforeseen errors, and logs each once. Answers requests that the end of the process cuts off."""

import asyncio
from collections.abc import Awaitable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mq.http.reply import BrokenOff, cut_off, logged_problem, problem_response


class Failures:
    """Within FastAPI's own middleware, which would answer such an error, and then pass it on to uvicorn's log too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection. Raises `BrokenOff` if an answer has begun, or the client is gone."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        def noting_start(message: Message) -> Awaitable[None]:
            nonlocal started
            started = True
            return send(message)

        try:
            await self._app(scope, receive, noting_start)
        except BrokenOff:
            raise
        except ClientDisconnect as error:
            # The client has gone away while its body was read. Nothing is wrong here, so nothing is logged.
            raise BrokenOff from error
        except asyncio.CancelledError as error:
            if started:
                raise BrokenOff from error
            await problem_response(cut_off())(scope, receive, send)
        except Exception as error:
            problem = logged_problem(error, scope["method"], scope["path"])
            if started:
                raise BrokenOff from error
            await problem_response(problem)(scope, receive, send)
