"""Tickets: a web page puts one into the address of a stream or a socket, if a browser lets it send no header.

A ticket stands for the token of the request that asked for it. It opens one stream or socket, at one path, within some
seconds, at this broker. The token itself is in no address, since addresses are in histories and in logs.
"""

import base64
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from filer.clock import Clock
from mq.base.errors import Unauthenticated

TICKET_SECONDS = 30.0
MOST_TICKETS, MOST_OF_PRINCIPAL = 2048, 100
"""So many wait to be used, of all principals and of each: the oldest gives way. With a token each, they are 16 MiB."""
_SECRET_BYTES = 24


@dataclass(frozen=True, slots=True)
class _Ticket:
    """An issued ticket. No text made of it shows the token."""

    path: str
    principal: str
    until_seconds: float
    authorization: bytes = field(repr=False)


class Tickets:
    """The tickets that a broker has issued, and that are not used yet. Belongs to one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._given: OrderedDict[str, _Ticket] = OrderedDict()
        self._of_principals: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many wait to be used."""
        return len(self._given)

    def issue(self, path: str, principal: str, authorization: bytes) -> str:
        """A ticket for that path, which stands for this value of `Authorization`."""
        now_seconds = self._clock.monotonic_seconds()
        while self._given and next(iter(self._given.values())).until_seconds <= now_seconds:
            self._take(next(iter(self._given)))
        if self._of_principals[principal] >= MOST_OF_PRINCIPAL:
            self._take(next(secret for secret, each in self._given.items() if each.principal == principal))
        elif len(self._given) >= MOST_TICKETS:
            self._take(next(iter(self._given)))
        secret = base64.urlsafe_b64encode(self._clock.entropy(_SECRET_BYTES)).decode()
        self._given[secret] = _Ticket(path, principal, now_seconds + TICKET_SECONDS, authorization)
        self._of_principals[principal] += 1
        return secret

    def redeem(self, secret: str, path: str) -> bytes:
        """The value of the ticket, which is then used up, whatever the request's outcome. Raises `Unauthenticated`."""
        ticket = self._take(secret)
        if ticket is None or ticket.until_seconds <= self._clock.monotonic_seconds() or ticket.path != path:
            raise Unauthenticated(
                f"the ticket is not good: it opens one stream or socket, at the path that it was asked for, within "
                f"{TICKET_SECONDS:.0f} s, at the broker that gave it. POST {path}/tickets gives a new one"
            )
        return ticket.authorization

    def _take(self, secret: str) -> _Ticket | None:
        ticket = self._given.pop(secret, None)
        if ticket is not None:
            self._of_principals[ticket.principal] -= 1
            if not self._of_principals[ticket.principal]:
                del self._of_principals[ticket.principal]
        return ticket
