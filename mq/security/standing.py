"""Permissions that last: a subscription or a socket goes on only while its credential is good and allows it."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from filer.clock import Clock
from filer.errors import BraidError
from mq.base.errors import Forbidden, Unauthenticated
from mq.security.caller import Credential
from mq.security.needs import Need

if TYPE_CHECKING:
    from mq.security.credentials import Credentials

REVIEW_SECONDS = 0.5
"""The pause between looks at files: a change is in force in less than a second."""
LONGEST_TIMER_SECONDS = 3600.0
"""The longest time between looks at a credential: clocks are set, and an event loop counts no suspended time."""
Over: TypeAlias = asyncio.Future[BraidError]
"""Done when the permission is over, with the reason."""


def is_over(over: Over | None) -> BraidError | None:
    """Why a permission is over; None while it is not, and if none was asked for."""
    return None if over is None or not over.done() or over.cancelled() else over.result()


class Standing:
    """One permission that lasts. `over` is done when it is over."""

    def __init__(self, credentials: "Credentials", clock: Clock, credential: Credential, need: Need) -> None:
        self._credentials, self._clock, self._credential = credentials, clock, credential
        self._needs = {need}
        self.over: Over = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, need: Need) -> None:
        """Rely on this too from now on."""
        self._needs.add(need)

    def review(self) -> None:
        """Look whether the permission is over. Call this after every change of a credential."""
        if self.over.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            principal = self._credentials.principal(self._credential)
            for need in self._needs:
                if (refusal := principal.refusal(need)) is not None:
                    raise refusal
        except (Forbidden, Unauthenticated) as refusal:
            self.over.set_result(refusal)
            return
        left_seconds = principal.until_seconds - self._clock.now_us() / 1e6
        delay_seconds = min(max(left_seconds, 0.0) + 0.01, LONGEST_TIMER_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self.review)

    def close(self) -> None:
        """End the permission: no work relies on it any more."""
        if self._timer is not None:
            self._timer.cancel()
        self.over.cancel()


class Standings:
    """All permissions of a broker that last."""

    def __init__(self, credentials: "Credentials | None", clock: Clock) -> None:
        self._credentials, self._clock = credentials, clock
        self._open: set[Standing] = set()

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def of(self, credential: Credential | None, need: Need) -> Iterator[Standing | None]:
        """The permission of a request that was admitted; None if it was not admitted for its credential."""
        known = self._credentials
        if known is None or credential is None or not (isinstance(credential, bytes) or known.takes_certificates):
            yield None
            return
        standing = Standing(known, self._clock, credential, need)
        self._open.add(standing)
        try:
            standing.review()
            yield standing
        finally:
            self._open.discard(standing)
            standing.close()

    def review(self) -> None:
        """Look at each permission: the keys, hashes or policy that check credentials have changed."""
        for standing in tuple(self._open):
            standing.review()
