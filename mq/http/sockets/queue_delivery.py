"""A subscription to a queue group: claims messages as the client gives credit. The client acks them."""

from typing import Any

from filer.errors import BraidError
from mq.forms.formats import ARROW, JSON
from mq.forms.group_bodies import ClaimBody
from mq.http.routes import SOCKET
from mq.http.sockets.group_calls import pause_after, problem_document
from mq.http.sockets.requests import Id
from mq.http.sockets.subscription import PAGE_BYTES, PAGE_ROWS, Outlet, SubscribeBody, Subscription
from mq.service.groups.claims_page import claims_in
from mq.service.groups.group_service import GroupService
from mq.service.groups.operations import CLAIM, PUT

WAIT_SECONDS = 20.0
"""One claim waits so long for a message. Then the next claim waits."""


class QueueDelivery(Subscription):
    """A delivered message that is neither acked nor released is handed out again when its lease is over."""

    def __init__(
        self, outlet: Outlet, id_: Id, topic: str, asked: SubscribeBody, service: GroupService, consumer: str
    ) -> None:
        super().__init__(outlet, id_, asked.credit)
        assert asked.group is not None
        self.group: str = asked.group
        self._topic, self._asked, self._service, self._consumer = topic, asked, service, consumer

    async def start(self) -> dict[str, Any]:
        """Create the group if it does not exist. A group of the other mode is refused."""
        with self._broker.read_budget.lease() as lease:
            await self._service.ask(PUT, self._topic, self.group, {"mode": "queue"}, lease)
            lease.close()
        return {"group": self.group}

    async def run(self) -> dict[str, Any]:
        """Claim and deliver until the group, or the topic, is gone."""
        failed = 0
        while True:
            await self.credit.some()
            try:
                await self._deliver_claims()
                failed = 0
            except BraidError as error:
                problem = problem_document(error, SOCKET.of(self._topic).path)
                if not problem["retryable"]:
                    return {"end": "refused", "problem": problem}
                # For example, its coordinator is gone: the next one is found, and nothing was handed out meanwhile.
                failed += 1
                await pause_after(self._broker.clock, failed)

    async def _deliver_claims(self) -> None:
        asked = self._asked
        media_type = ARROW if asked.format == "arrow" else JSON
        claim = ClaimBody(
            max=min(self.credit.left, PAGE_ROWS), max_bytes=PAGE_BYTES, wait=WAIT_SECONDS, consumer=self._consumer
        )
        if asked.lease_seconds is not None:
            claim.lease_seconds = asked.lease_seconds
        with self._broker.read_budget.lease() as lease:
            claimed = await self._service.ask(CLAIM, self._topic, self.group, claim, lease, accept=media_type)
            if count := claimed.count():
                lease.keep(sum(map(len, claimed.parts)))
                if media_type == JSON:
                    await self.deliver(claimed.parts, count)
                else:
                    await self.deliver_arrow(claimed.parts, count, claims_in(ARROW, claimed.parts[0]))
            lease.close()
