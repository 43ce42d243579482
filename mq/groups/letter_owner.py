"""Which dead letters are of a group, and not of an earlier one of the same name. Pure but for `owner_of`."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groups.queue.redrives import Redrives
from mq.groups.dead_letter_rows import GROUP, GROUP_ID, ORIGIN, TOPIC
from mq.groups.group_source import GroupSource


class LetterOwner(NamedTuple):
    """A group as its dead letters name it.

    A group that is deleted and created again has another `id`, and did not give up the messages of the one before.
    Letters that earlier versions have stored name no id. Of those, only letters of messages in segments below
    `begins_at` are known to be of another group: they were of an earlier topic of that name. To hide one of the group's
    own would be worse than to show one of the group before.
    """

    topic: str
    group: str
    id: str
    begins_at: int

    def owns(self, headers: Iterable[tuple[str, bytes]] | None) -> bool:
        """Whether a letter with these headers is the group's own."""
        told = dict(headers or ())
        return self._names(told) and self._is_of_this_life(told)

    def owned_before(self, headers: Iterable[tuple[str, bytes]] | None) -> bool:
        """Whether a letter is of an earlier group of this name."""
        told = dict(headers or ())
        return self._names(told) and not self._is_of_this_life(told)

    def rows(self, headers: pa.ChunkedArray) -> list[int]:
        """Return the rows of a page of letters that are the group's own, as `owns` does for one."""
        if not len(headers):
            return []
        lookup = partial(pc.map_lookup, headers, occurrence="last")
        named, origins = lookup(GROUP_ID), lookup(ORIGIN)
        is_ours = pc.and_(pc.equal(lookup(TOPIC), self.topic.encode()), pc.equal(lookup(GROUP), self.group.encode()))
        is_own = pc.and_(is_ours, pc.fill_null(pc.equal(named, self.id.encode()), True))
        found = (row for row, own in enumerate(is_own.to_pylist()) if own)
        return [row for row in found if named[row].is_valid or self._may_be_own(origins[row].as_py())]

    def _names(self, told: Mapping[str, bytes]) -> bool:
        return told.get(TOPIC) == self.topic.encode() and told.get(GROUP) == self.group.encode()

    def _is_of_this_life(self, told: Mapping[str, bytes]) -> bool:
        named = told.get(GROUP_ID)
        return self._may_be_own(told.get(ORIGIN)) if named is None else named == self.id.encode()

    def _may_be_own(self, origin: bytes | None) -> bool:
        """Whether a letter that names no group's id may be of this one, by its origin, which may be forged."""
        segment = (origin or b"").partition(b"-")[0]
        return not segment.isdigit() or len(segment) > 18 or int(segment) >= self.begins_at


async def owner_of(source: GroupSource, group: str, redrives: Redrives) -> LetterOwner:
    """Return the owner of a group's letters. Raises as `GroupSource.view`."""
    view = await source.view()
    # Segments of a topic group do not show which of its members was deleted and created again.
    begins_at = view.state.begins_at if source.source is None else 0
    return LetterOwner(source.topic, group, redrives.group_id, begins_at)
