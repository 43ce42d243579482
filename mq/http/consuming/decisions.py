"""Acks, releases and extensions of many messages: a step at a time, and others are served in between."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from groups.queue.claims import Outcome, Verdict
from mq.base.end_tasks import end_tasks
from mq.base.errors import Conflict
from mq.groups.queue_group import QueueGroup, ToDecide
from mq.http.consuming.group_answer import GroupAnswer
from mq.http.consuming.group_bodies import MOST_DECIDED, AckBody, ClaimPart, to_decide
from mq.http.json_body import M as Body
from mq.http.json_body import body_in_steps
from mq.limits.read_budget import ReadLease
from mq.limits.steps import STEP_ROWS, Steps, begun_at_once, in_turns

AT_ONCE = 32
"""Ranges that are decided in a turn, unless a claim has more: some 0.7 ms."""
LONG_BYTES = 8 * 1024
"""A body up to this is worked on at once. A longer one may take a millisecond in its first step, and waits its turn."""
_COUNTED_BYTES = 256 * 1024
_NAMED_BYTES = 1100
"""A message that is named takes so much: as a part of the body, checked, and while it is decided."""
Decide: TypeAlias = Callable[[Sequence[ToDecide]], Awaitable[list[list[Outcome]]]]
"""What a group does about some messages: an outcome for each range of each part, once that is stored."""


def decision_bytes(body: bytes) -> int:
    """About what a body that names many things takes from when it is parsed until it is answered: far more than it."""
    # To count in 4 MB takes longer than to parse a step of them. A body so long may name as many as are allowed.
    named = MOST_DECIDED if len(body) > _COUNTED_BYTES else min(body.count(b"{"), MOST_DECIDED)
    return len(body) + _NAMED_BYTES * named


async def parsed_in_turns(body: bytes, model: type[Body], lease: ReadLease) -> Body:
    """A body that names many things, parsed and checked some in each turn. Raises as `parse_body`."""
    begun = in_turns if len(body) > LONG_BYTES else begun_at_once
    return await begun(body_in_steps(body, model, MOST_DECIDED), lease.turns)


async def decided(what: AckBody, group: QueueGroup, lease: ReadLease, decide: Decide) -> GroupAnswer:
    """Decide about messages and tell what became of each part, some in each turn. Raises as both do."""
    parts = await begun_at_once(to_decide(what.messages, group.tokens), lease.turns)
    slices = list(_slices(parts))
    outcomes = await decide(parts) if len(slices) == 1 else await _in_slices(slices, lease, decide)
    return await begun_at_once(_told(what.messages, outcomes), lease.turns)


def _slices(parts: Sequence[ToDecide]) -> Iterator[Sequence[ToDecide]]:
    """The parts in slices of about `AT_ONCE` ranges."""
    begin = count = 0
    for index, part in enumerate(parts):
        count += len(part.all_ranges)
        if count >= AT_ONCE:
            yield parts[begin : index + 1]
            begin, count = index + 1, 0
    if begin < len(parts):
        yield parts[begin:]


async def _in_slices(slices: Iterable[Sequence[ToDecide]], lease: ReadLease, decide: Decide) -> list[list[Outcome]]:
    """Each slice is decided by itself, and all wait together for what is stored.

    Cut off between two slices, some are decided and others are not, as after an answer that was lost: asked again,
    those that were decided are answered as the first time.
    """

    async def one(parts: Sequence[ToDecide]) -> list[list[Outcome]]:
        await lease.turns.wait()
        return await decide(parts)

    tasks = [asyncio.create_task(one(each)) for each in slices]
    try:
        return [outcome for outcomes in await asyncio.gather(*tasks) for outcome in outcomes]
    finally:
        await end_tasks(tasks)
        tasks.clear()


def _told(parts: Sequence[ClaimPart], outcomes: Sequence[Sequence[Outcome]]) -> Steps[GroupAnswer]:
    """What became of each part. Raises `Conflict` if nothing of them held."""
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
