"""A subscription to a queue group: claims messages as the client gives credit. The client acks them."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from filer.errors import BraidError
from mq.forms.formats import ARROW, JSON
from mq.forms.render import Part
from mq.http.consuming.claims_page import CLAIMS
from mq.http.consuming.group_answer import GroupAnswer
from mq.http.consuming.group_router import GroupRouter
from mq.http.routes import SOCKET
from mq.http.sockets.group_calls import asked_of_group, pause_after, problem_document
from mq.http.sockets.requests import Id
from mq.http.sockets.subscription import PAGE_BYTES, PAGE_ROWS, Outlet, SubscribeBody, Subscription
from mq.limits.read_budget import ReadLease
from mq.peers.group_call import GroupRequest

WAIT_SECONDS = 20.0
"""One claim waits so long for a message. Then the next claim waits."""
_BEFORE_CLAIMS = b'],"claims":['


class QueueDelivery(Subscription):
    """A delivered message that is neither acked nor released is handed out again when its lease is over."""

    def __init__(
        self, outlet: Outlet, id_: Id, topic: str, asked: SubscribeBody, router: GroupRouter, consumer: str
    ) -> None:
        super().__init__(outlet, id_, asked.credit)
        assert asked.group is not None
        self.group: str = asked.group
        self._topic, self._asked, self._router, self._consumer = topic, asked, router, consumer

    async def start(self) -> dict[str, Any]:
        """Create the group if it does not exist. A group of the other mode is refused."""
        await self._ask("put", {"mode": "queue"}, 0.0, JSON)
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
        lease_seconds = {} if asked.lease_seconds is None else {"lease_seconds": asked.lease_seconds}
        body = {
            "max": min(self.credit.left, PAGE_ROWS),
            "max_bytes": PAGE_BYTES,
            "wait": WAIT_SECONDS,
            "consumer": self._consumer,
            **lease_seconds,
        }
        lease = self._broker.read_budget.lease()
        lease.turns = self._broker.turns.streams
        with lease:
            answer = await self._ask("claims", body, WAIT_SECONDS, media_type, lease)
            about = _about_json(answer.parts) if media_type == JSON else _about_arrow(answer.parts)
            count = sum(claim["to"] - claim["from"] for claim in about["claims"])
            if count:
                lease.keep(sum(map(len, answer.parts)))
                if media_type == JSON:
                    await self.deliver(answer.parts, count)
                else:
                    await self.deliver_arrow(answer.parts, count, dict(about))
            lease.close()

    async def _ask(
        self, operation: str, body: dict[str, Any], wait_seconds: float, accept: str, lease: ReadLease | None = None
    ) -> GroupAnswer:
        request = GroupRequest(self._topic, self.group, operation, orjson.dumps(body), accept)
        if lease is not None:
            return await asked_of_group(self._router, request, lease, wait_seconds)
        with self._broker.read_budget.lease() as lease:
            answer = await asked_of_group(self._router, request, lease, wait_seconds)
            lease.close()
            return answer


def _about_json(parts: Sequence[Part]) -> Mapping[str, Any]:
    """The claims of a JSON answer, which come behind its messages. Only they are parsed.

    The last match is the right one: claims have no brackets of their own.
    """
    whole = b"".join(parts)
    found: dict[str, Any] = orjson.loads(b'{"claims":[' + whole[whole.rindex(_BEFORE_CLAIMS) + len(_BEFORE_CLAIMS) :])
    return found


def _about_arrow(parts: Sequence[Part]) -> Mapping[str, Any]:
    """The claims of an Arrow answer. They are in the metadata of its schema, with which it begins."""
    with pa.ipc.open_stream(pa.py_buffer(parts[0])) as stream:
        found: dict[str, Any] = orjson.loads(stream.schema.metadata[CLAIMS])
    return found
