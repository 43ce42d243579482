"""When a segment moves, its new owner goes on with what the former one knows of its load."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from filer.errors import BraidError
from filer.topic_state import Segment, TopicState
from leader.load_averages import KnownAverages, goes_on_for
from mq.parts import Parts
from mq.topic_runtime import TopicRuntime

ASK_SECONDS = 1.0
"""A move does not wait longer for what is only good to have."""


class Running(Protocol):
    """A broker with its running topics."""

    @property
    def topics(self) -> Mapping[str, TopicRuntime]:
        """By name, deleted ones included."""
        ...


class LoadHandOver:
    """Carries averages from owner to owner. What is lost on the way begins anew: unknown is neither hot nor cold."""

    def __init__(self, parts: Parts, broker: Running) -> None:
        self._parts, self._broker = parts, broker

    async def collect(self, topic: str, segments: Iterable[int]) -> Mapping[int, KnownAverages]:
        """What the live owners of these open segments know, by segment."""
        runtime = self._broker.topics.get(topic)
        if runtime is None:
            return {}
        leaving = [segment for i in segments if (segment := runtime.state.segment(i)) and segment.state == "open"]
        known = await asyncio.gather(*(self._averages(runtime, segment) for segment in leaving))
        return {segment.id: each for segment, each in zip(leaving, known, strict=True) if each is not None}

    async def deliver(self, state: TopicState, known: Mapping[int, KnownAverages]) -> None:
        """Give it to the owners of the segments that go on for those."""
        segments = {segment.id: segment for segment in state.segments}
        for segment in state.open_segments:
            before = goes_on_for(segment, segments)
            if before is not None and before.id in known and before.owner != segment.owner:
                with contextlib.suppress(BraidError):
                    await self._give(state, segment, known[before.id])

    async def _averages(self, runtime: TopicRuntime, segment: Segment) -> KnownAverages | None:
        if segment.owner == self._parts.broker:
            return runtime.loads.averages(segment.id)
        with contextlib.suppress(BraidError):
            url = self._parts.url_of(segment.owner)
            return await self._parts.peers.averages(url, runtime.topic, segment.id, timeout_seconds=ASK_SECONDS)
        return None

    async def _give(self, state: TopicState, segment: Segment, averages: KnownAverages) -> None:
        if segment.owner == self._parts.broker:
            self._broker.topics[state.topic].loads.take_over(segment.id, averages)
        else:
            url = self._parts.url_of(segment.owner)
            await self._parts.peers.give_averages(url, state.topic, segment.id, state.version, averages)
