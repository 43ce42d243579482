"""Acks, releases and extensions of many messages: done a step at a time, with other work in between."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from groups.queue.claims import Outcome, Verdict
from mq.base.errors import Conflict
from mq.forms.group_bodies import AckBody, ClaimPart, to_decide
from mq.groups.queue_group import QueueGroup, Turn
from mq.groups.to_decide import ToDecide
from mq.limits.read_budget import ReadLease
from mq.limits.steps import STEP_ROWS, Steps, begun_at_once
from mq.service.groups.answers import Document

Decide: TypeAlias = Callable[[Sequence[ToDecide], Turn], Awaitable[list[list[Outcome]]]]
"""Decides about messages of a group, in turns. Returns an outcome for each range of each part, once that is stored."""


async def decided(what: AckBody, group: QueueGroup, lease: ReadLease, decide: Decide) -> Document:
    """Decide about messages and report the outcome of each part, some in each turn. Raises as both do."""
    parts = await begun_at_once(to_decide(what.messages, group.tokens), lease.turns)
    outcomes = await decide(parts, lease.turns.wait)
    return await begun_at_once(_told(what.messages, outcomes), lease.turns)


def _told(parts: Sequence[ClaimPart], outcomes: Sequence[Sequence[Outcome]]) -> Steps[Document]:
    """The outcome of each part. Raises `Conflict` if none of the messages was accepted."""
    results: list[dict[str, Any]] = []
    for index, (part, of_part) in enumerate(zip(parts, outcomes, strict=True), start=1):
        accepted = [[each.start, each.stop] for each in of_part if each.verdict is Verdict.ACCEPTED]
        lost = [[each.start, each.stop] for each in of_part if each.verdict is Verdict.LOST]
        results.append({"claim": part.claim, "accepted": accepted, "lost": lost})
        if not index % STEP_ROWS:
            yield
    accepted_count, lost_count = (
        sum(stop - start for result in results for start, stop in result[name]) for name in ("accepted", "lost")
    )
    if not accepted_count:
        raise Conflict(
            "claim-lost",
            f"none of these {lost_count} messages is with this consumer any more: the leases have run out, and the "
            "messages are with somebody else, or done",
        )
    return Document.of({"accepted": accepted_count, "lost": lost_count, "results": results})
