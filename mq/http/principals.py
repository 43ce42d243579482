"""Whose a request is, for the endpoints whose answer depends on it. The dispatcher has found it out."""

from starlette.requests import Request

from filer.clock import Clock
from mq.security.principal import Principal

PRINCIPAL = "braidmq.principal"
"""The key in a request's scope."""


def principal_of(request: Request) -> Principal:
    """The principal of a request that was admitted. Raises `KeyError` for any other: nobody is trusted by mistake."""
    principal: Principal = request.scope[PRINCIPAL]
    return principal


def presigned_seconds(request: Request, clock: Clock, most_seconds: int) -> int:
    """How long an address may be good that is given to the request's principal: no longer than its credential."""
    left_seconds = principal_of(request).until_seconds - clock.now_us() / 1e6
    return int(max(1, min(most_seconds, left_seconds)))
