"""The names that belong to topic groups: one record for each member, which names its group.

The member's own record alone decides its membership, so a name is in one group at most, and never also a topic of its
own: all that want the name change that one object by compare-and-swap. The group's record names its topics before any
of them joins. Stopped between the two, the group lists a name that is not a member (yet): publishes to it find no
topic, and the same request again goes on where it stopped. If another request takes the name meanwhile, it keeps the
name, and this one reports that.

`model/topic_groups.py` explores this.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from filer.clock import Clock
from filer.errors import OutcomeUnknown
from filer.topic.catalogue import TRIES, Catalogue
from filer.topic.topic_state import Membership, TopicState
from leader.transitions import joined, new_member
from mq.base.end_tasks import raise_first
from mq.base.errors import Conflict
from mq.topic.topic_registry import TopicRegistry
from mq.transitions.state_broadcast import StateBroadcast

_AT_ONCE = 16


class Memberships:
    """The members of topic groups, on the store."""

    def __init__(self, catalogue: Catalogue, clock: Clock, topics: TopicRegistry, broadcast: StateBroadcast) -> None:
        self._catalogue, self._clock, self._topics, self._broadcast = catalogue, clock, topics, broadcast

    async def counts(self, membership: Membership) -> bool:
        """Whether the group that a membership record names is there.

        If it is not, it never will be: a later group of that name has another first segment.
        """
        record = await self._catalogue.read(membership.group)
        return record is not None and record.state.has_member(membership)

    async def check_free(self, names: Sequence[str], group: str) -> None:
        """Raise `Conflict` if one of these cannot become, or stay, a member of that group, as far as is known now."""

        async def check(name: str) -> None:
            record = await self._catalogue.read(name)
            member_of = None if record is None else record.state.member_of
            if record is not None and (member_of is None or member_of.group != group):
                await self._check_untaken(record.state, group)

        await _each(names, check)

    async def join(self, names: Sequence[str], membership: Membership) -> None:
        """Make these names members of the group. A name that is a member already stays one.

        Stopped at any line, some have joined and the others have not, and each may join later: a record is created, or
        changed by one compare-and-swap. Raises `Conflict` if another owner has taken one of them.
        """

        async def one(name: str) -> None:
            for _ in range(TRIES):
                if await self._try_to_join(name, membership):
                    return
            raise OutcomeUnknown(f"topic {name!r} keeps changing, and has not joined the group; try again")

        await _each(names, one)

    async def _try_to_join(self, name: str, membership: Membership) -> bool:
        record = await self._catalogue.read(name)
        if record is None:
            fresh = new_member(name, membership, now_us=self._clock.now_us())
            if not await self._catalogue.create(fresh):
                return False
            self._tell(fresh)
            return True
        over = record.state.member_of
        if over == membership:
            self._topics.apply(record.state)
            return True
        await self._check_untaken(record.state, membership.group)
        # The group of `over`, if any, is gone for ever by now, whether it is an earlier or a later one of that name.
        state = await self._catalogue.change(name, lambda state: joined(state, membership, over))
        if state is None or state.member_of != membership:
            return False
        self._tell(state)
        return True

    async def _check_untaken(self, state: TopicState, group: str) -> None:
        """Raise `Conflict` if the name of that record cannot become that of a member of the group."""
        if not state.deleted:
            what = "a topic group itself" if state.is_grouped else "a topic that has segments of its own"
            raise Conflict(
                "topic-conflict",
                f"{state.topic!r} cannot join topic group {group!r}: it is {what}; name topics that do not exist yet",
            )
        if state.member_of is not None and await self.counts(state.member_of):
            raise Conflict(
                "topic-conflict",
                f"{state.topic!r} cannot join topic group {group!r}: it is a member of topic group "
                f"{state.member_of.group!r}, and stays one as long as that is there; name other topics",
            )

    def _tell(self, state: TopicState) -> None:
        self._topics.apply(state)
        self._broadcast.broadcast(state)


async def _each(names: Sequence[str], work: Callable[[str], Awaitable[None]]) -> None:
    """Call `work` for each name, for some of them at a time. Raises the first error of the first name with an error."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        async with gate:
            await work(name)

    raise_first(await asyncio.gather(*map(one, names), return_exceptions=True))
