"""Running a transition: record it in topic.json, seal its segments, open the successors (docs/design.md §5)."""

import asyncio
from typing import Protocol

from filer.clock import Clock
from filer.topic.catalogue import Catalogue, TopicRecord
from filer.topic.topic_state import Segment, TopicState
from leader.transitions import Begin, SealedEnd, finished, with_sealed


class Sealer(Protocol):
    """Has segments sealed."""

    async def seal(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd:
        """Have the segment sealed by its owner, or by another broker if the owner is gone.

        Raises `BraidError` if no broker can seal it now.
        """
        ...


class TransitionRunner:
    """Carries out transitions, one at a time per topic, from the step that they have reached."""

    def __init__(self, catalogue: Catalogue, sealer: Sealer, clock: Clock) -> None:
        self._catalogue, self._sealer, self._clock = catalogue, sealer, clock

    async def run(self, topic: str, begin: Begin) -> TopicState | None:
        """Begin a transition, unless `begin` returns None, and finish it, or the one found; the state after it.

        None if there is no such topic. Safe to stop at any line: the record in topic.json names the steps, and any
        broker can repeat them from the start without harm.
        """
        found = await self._catalogue.change_record(topic, begin)
        return None if found is None else await self.resume(found)

    async def resume(self, found: TopicRecord) -> TopicState | None:
        """Finish the transition in the record, if there is one; the state after it.

        Publishers wait while segments are sealed, so the record is not read again before the change: if another broker
        has changed it meanwhile, the store refuses the put, and the record is read again then.
        """
        state, record = found.state, found.state.transition
        if record is None:
            return state
        sealing = [s for s in state.segments if s.id in record.seal]
        sealed = await asyncio.gather(*(self._sealer.seal(state.topic, s, state) for s in sealing))
        ends = {segment.id: end for segment, end in zip(sealing, sealed, strict=True)}
        now_us = self._catalogue.stamp_us()
        if record.reason == "delete":
            # Before topic.json forgets the segments. Stopped here, the transition is still under way: the next broker
            # finds what was written, and writes the same again.
            leaving = with_sealed(state, record, ends, now_us=now_us)
            await self._catalogue.write_history(state.topic, leaving)

        def finish(newest: TopicState) -> TopicState | None:
            return finished(newest, record, ends, now_us=now_us)

        after = await self._catalogue.change_record(state.topic, finish, known=found)
        return None if after is None else after.state
