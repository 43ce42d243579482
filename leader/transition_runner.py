"""Running a transition: record it in topic.json, seal its segments, open the successors (docs/design.md §5)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from filer.clock import Clock
from filer.errors import UnreadableObject
from filer.event_log import EventLog
from filer.topic.catalogue import Catalogue, TopicRecord
from filer.topic.topic_state import Segment, TopicState, Transition
from leader.transitions import Begin, SealedEnd, finished, leaves_out, with_sealed, without_unsealable

_log = EventLog(__name__)


class Sealer(Protocol):
    """Has segments sealed."""

    async def seal(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd:
        """Have the segment sealed by its owner, or by another broker if the owner is gone.

        Raises `BraidError` if no broker can seal it now.
        """
        ...


LeftOut = Callable[[str, int, UnreadableObject], None]


def nobody_told(topic: str, segment_id: int, error: UnreadableObject) -> None:
    """For a runner without a caller that needs to know which segments it leaves out."""


class TransitionRunner:
    """Carries out transitions, one at a time per topic, from the step that they have reached.

    `on_left_out` is called with the topic, the segment and the reason when a transition goes on without a segment.
    """

    def __init__(self, catalogue: Catalogue, sealer: Sealer, clock: Clock, on_left_out: LeftOut = nobody_told) -> None:
        self._catalogue, self._sealer, self._clock, self._on_left_out = catalogue, sealer, clock, on_left_out

    async def run(self, topic: str, begin: Begin) -> TopicState | None:
        """Begin a transition, unless `begin` returns None, and finish it, or the one found; the state after it.

        None if there is no such topic. Safe to stop at any line: the record in topic.json names the steps, and any
        broker can repeat them from the start without harm.
        """
        found = await self._catalogue.change_record(topic, begin)
        if found is None:
            return None
        if found.is_ours and (record := found.state.transition) is not None:
            _log.info("transition_begun", topic=topic, reason=record.reason, segments=record.seal)
        return await self.resume(found)

    async def resume(self, found: TopicRecord) -> TopicState | None:
        """Finish the transition in the record, if there is one; the state after it.

        Publishers wait while segments are sealed, so the record is not read again before the change: if another broker
        has changed it meanwhile, the store refuses the put, and the record is read again then.
        """
        state, record = found.state, found.state.transition
        if record is None:
            return state
        sealing = [s for s in state.segments if s.id in record.seal]
        began_seconds = self._clock.monotonic_seconds()
        ends, failed = await self._seal_all(state, sealing)
        if failed:
            unsealable = {id_: error for id_, error in failed.items() if isinstance(error, UnreadableObject)}
            if len(unsealable) < len(failed) or not leaves_out(record):
                # The others can be sealed again: nothing is undone. Errors that may pass come first.
                raise [*(error for id_, error in failed.items() if id_ not in unsealable), *unsealable.values()][0]
            return await self._go_on_without(found, record, unsealable)
        if sealing:
            _log.info(
                "segments_sealed",
                topic=state.topic,
                reason=record.reason,
                segments=list(ends),
                duration_seconds=round(self._clock.monotonic_seconds() - began_seconds, 3),
            )
        now_us = self._catalogue.stamp_us()
        if record.reason == "delete":
            # Before topic.json forgets the segments. Stopped here, the transition is still under way: the next broker
            # finds what was written, and writes the same again.
            leaving = with_sealed(state, record, ends, now_us=now_us)
            await self._catalogue.write_history(state.topic, leaving)

        after = await self._catalogue.change_record(
            state.topic, lambda newest: finished(newest, record, ends, now_us=now_us), known=found
        )
        if after is None:
            return None
        if after.is_ours:
            self._tell(state.topic, record, sealing)
        return after.state

    def _tell(self, topic: str, record: Transition, sealed: Sequence[Segment]) -> None:
        """Log a transition once, by the broker that finished it."""
        _log.info(
            "transition_finished",
            topic=topic,
            reason=record.reason,
            segments=[segment.id for segment in sealed],
            from_=dict.fromkeys(segment.owner for segment in sealed),
            successors=[segment.id for segment in record.open],
            to=dict.fromkeys(segment.owner for segment in record.open),
            duration_seconds=round((self._clock.now_us() - record.started_us) / 1e6, 3),
        )

    async def _seal_all(
        self, state: TopicState, sealing: Sequence[Segment]
    ) -> tuple[dict[int, SealedEnd], dict[int, Exception]]:
        """Have all of them sealed; returns ends by segment, and errors. One that fails keeps no other waiting."""
        outcomes = await asyncio.gather(
            *(self._sealer.seal(state.topic, segment, state) for segment in sealing), return_exceptions=True
        )
        ends: dict[int, SealedEnd] = {}
        failed: dict[int, Exception] = {}
        for segment, outcome in zip(sealing, outcomes, strict=True):
            if isinstance(outcome, SealedEnd):
                ends[segment.id] = outcome
            elif isinstance(outcome, Exception):
                failed[segment.id] = outcome
            else:
                raise outcome
        return ends, failed

    async def _go_on_without(
        self, found: TopicRecord, record: Transition, unsealable: Mapping[int, UnreadableObject]
    ) -> TopicState | None:
        """Finish the transition without segments whose last file is damaged: it is not known where they end.

        They stay open and their owners stay as they are, so nothing of them is sealed over. Stopped before the record
        is changed, the next broker finds the whole transition, and the same segments unsealable or mended. Stopped
        after it, it finds the smaller one; the other segments' seals are found on the store.
        """
        topic = found.state.topic
        for segment_id, error in unsealable.items():
            self._on_left_out(topic, segment_id, error)
        smaller = await self._catalogue.change_record(
            topic, lambda newest: without_unsealable(newest, record, unsealable), known=found
        )
        return None if smaller is None else await self.resume(smaller)
