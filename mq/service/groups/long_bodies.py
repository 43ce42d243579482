"""Bodies that name many messages or segments: their memory, and parsing them with other work in between."""

from mq.forms.group_bodies import MOST_DECIDED
from mq.forms.json_form import M as Body
from mq.forms.json_form import body_in_steps
from mq.limits.read_budget import ReadLease
from mq.limits.steps import begun_at_once, in_turns

LONG_BYTES = 8 * 1024
"""A body up to this is worked on at once. A longer one may take a millisecond in its first step, and waits its turn."""
_COUNTED_BYTES = 256 * 1024
_NAMED_BYTES = 1100
"""The memory of one named message: as a part of the body, checked, and while it is decided."""


def decision_bytes(body: bytes) -> int:
    """About the memory of a body that names many things, from parsing until the answer: far more than its length."""
    # Counting in 4 MB takes longer than parsing a step of them. A body that long may name as many as are allowed.
    named = MOST_DECIDED if len(body) > _COUNTED_BYTES else min(body.count(b"{"), MOST_DECIDED)
    return len(body) + _NAMED_BYTES * named


async def parsed_in_turns(body: bytes, model: type[Body], lease: ReadLease) -> Body:
    """A body that names many things, parsed and checked a part in each turn. Raises as `parse_body`."""
    begun = in_turns if len(body) > LONG_BYTES else begun_at_once
    return await begun(body_in_steps(body, model, MOST_DECIDED), lease.turns)
