"""Learns the cluster's brokers while they answer, to know others when one is gone."""

import asyncio
import math

from braidmq.cluster.admin import Admin
from braidmq.errors import BraidMQError
from braidmq.transport.retry import ONE_ROUND
from braidmq.transport.transport import Transport

_INTERVAL_SECONDS = 5.0
# After one broker has failed, others may follow, as in a rolling restart. So the next refresh comes soon.
_INTERVAL_AFTER_FAILURE_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0


class Discovery:
    """Lists the brokers in the background: at the first answer, then from time to time, and after a failure."""

    def __init__(self, transport: Transport, admin: Admin) -> None:
        self._transport = transport
        self._admin = admin
        self._refreshed_seconds = -math.inf
        self._refreshing: asyncio.Task[None] | None = None

    def refresh_if_due(self) -> None:
        """Refresh the list in the background, unless that was done recently."""
        now = self._transport.clock.monotonic_seconds()
        interval_seconds = (
            _INTERVAL_AFTER_FAILURE_SECONDS if self._transport.addresses.has_failed else _INTERVAL_SECONDS
        )
        if now >= self._refreshed_seconds + interval_seconds and (self._refreshing is None or self._refreshing.done()):
            self._refreshed_seconds = now
            self._refreshing = asyncio.create_task(self._refresh(), name="braidmq discovery")

    async def _refresh(self) -> None:
        try:
            cluster = await self._admin.cluster(retry=ONE_ROUND, timeout_seconds=_TIMEOUT_SECONDS)
        except BraidMQError:
            return  # keep the known addresses; a call that needs a broker gets the failure itself
        # Leaving brokers come last, but are kept: there may be no others.
        leaving_last = sorted(cluster.brokers, key=lambda broker: broker.state != "running")
        self._transport.addresses.learn(broker.url for broker in leaving_last if broker.url is not None)

    async def close(self) -> None:
        """Stop the refresh in the background."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
