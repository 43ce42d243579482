"""Learning the cluster's brokers while they answer, so as to know others when one is gone."""

import asyncio
import math

from braidmq.admin import Admin
from braidmq.errors import BraidMQError
from braidmq.retry import ONE_ROUND
from braidmq.transport import Transport

_EVERY_SECONDS = 5.0
# Once a broker has failed others may follow it, as when all are restarted one by one: who they are now is asked soon.
_AFTER_FAILURE_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0


class Discovery:
    """Looks at the cluster beside a client's own calls: at the first answer, at times, and when a broker has failed."""

    def __init__(self, transport: Transport, admin: Admin) -> None:
        self._transport = transport
        self._admin = admin
        self._looked_seconds = -math.inf
        self._looking: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """Look in the background, unless that was done lately."""
        now = self._transport.clock.monotonic_seconds()
        every_seconds = _AFTER_FAILURE_SECONDS if self._transport.addresses.has_failed else _EVERY_SECONDS
        if now >= self._looked_seconds + every_seconds and (self._looking is None or self._looking.done()):
            self._looked_seconds = now
            self._looking = asyncio.create_task(self._look(), name="braidmq discovery")

    async def _look(self) -> None:
        try:
            cluster = await self._admin.cluster(retry=ONE_ROUND, timeout_seconds=_TIMEOUT_SECONDS)
        except BraidMQError:
            return  # what is known stays; whoever needs a broker will hear of the failure
        # Those that leave come last: they may be all there is.
        leaving_last = sorted(cluster.brokers, key=lambda broker: broker.state != "running")
        self._transport.addresses.learn(broker.url for broker in leaving_last if broker.url is not None)

    async def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
