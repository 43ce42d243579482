"""Acks, releases and extensions of many messages: done a step at a time, with other work in between."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from groups.queue.claims import Outcome, Verdict
from mq.base.errors import Conflict
from mq.forms.group_bodies import MOST_DECIDED, AckBody, ClaimPart, to_decide
from mq.forms.json_form import M as Body
from mq.forms.json_form import body_in_steps
from mq.groups.queue_group import QueueGroup, Turn
from mq.groups.to_decide import ToDecide
from mq.http.consuming.group_answer import GroupAnswer
from mq.limits.read_budget import ReadLease
from mq.limits.steps import STEP_ROWS, Steps, begun_at_once, in_turns

LONG_BYTES = 8 * 1024
"""A body up to this is worked on at once. A longer one may take a millisecond in its first step, and waits its turn."""
_COUNTED_BYTES = 256 * 1024
_NAMED_BYTES = 1100
"""The memory of one named message: as a part of the body, checked, and while it is decided."""
Decide: TypeAlias = Callable[[Sequence[ToDecide], Turn], Awaitable[list[list[Outcome]]]]
"""Decides about messages of a group, in turns. Returns an outcome for each range of each part, once that is stored."""


def decision_bytes(body: bytes) -> int:
    """About the memory of a body that names many things, from parsing until the answer: far more than its length."""
    # Counting in 4 MB takes longer than parsing a step of them. A body that long may name as many as are allowed.
    named = MOST_DECIDED if len(body) > _COUNTED_BYTES else min(body.count(b"{"), MOST_DECIDED)
    return len(body) + _NAMED_BYTES * named


async def parsed_in_turns(body: bytes, model: type[Body], lease: ReadLease) -> Body:
    """A body that names many things, parsed and checked a part in each turn. Raises as `parse_body`."""
    begun = in_turns if len(body) > LONG_BYTES else begun_at_once
    return await begun(body_in_steps(body, model, MOST_DECIDED), lease.turns)


async def decided(what: AckBody, group: QueueGroup, lease: ReadLease, decide: Decide) -> GroupAnswer:
    """Decide about messages and report the outcome of each part, some in each turn. Raises as both do."""
    parts = await begun_at_once(to_decide(what.messages, group.tokens), lease.turns)
    outcomes = await decide(parts, lease.turns.wait)
    return await begun_at_once(_told(what.messages, outcomes), lease.turns)


def _told(parts: Sequence[ClaimPart], outcomes: Sequence[Sequence[Outcome]]) -> Steps[GroupAnswer]:
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
    return GroupAnswer.of({"accepted": accepted_count, "lost": lost_count, "results": results})
