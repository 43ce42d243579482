"""How busy segments are, as any broker shows it: what it counts of its own, and what the leader has heard of all."""

import contextlib
from collections.abc import Mapping

from filer.errors import BraidError
from leader.reshaping import Reshaping
from mq.load_report import ShownLoad
from mq.parts import Parts
from mq.topic_runtime import TopicRuntime

ASK_SECONDS = 1.0
"""Whoever asks how a topic stands may ask because brokers do not answer."""


class ShownLoads:
    """The loads of open segments, for people."""

    def __init__(self, parts: Parts, reshaping: Reshaping) -> None:
        self._parts, self._reshaping = parts, reshaping

    async def of(self, runtime: TopicRuntime) -> Mapping[int, ShownLoad]:
        """What is known of a topic's open segments, by id: here, and at the leader if it answers."""
        heard = await self._heard_by_leader(runtime)
        for segment in runtime.state.open_segments:
            if (own := runtime.loads.recent(segment.id)) is not None:
                hot_slot = heard[segment.id].hot_slot if segment.id in heard else None
                heard[segment.id] = ShownLoad(own, hot_slot)
        return heard

    def heard(self, runtime: TopicRuntime) -> dict[int, ShownLoad]:
        """What this broker has heard as the leader; nothing where it does not lead."""
        topic, reshaping = runtime.topic, self._reshaping
        open_ids = [segment.id for segment in runtime.state.open_segments]
        shown = {each: ShownLoad(reshaping.load(topic, each), reshaping.hot_slot(topic, each)) for each in open_ids}
        return {each: load for each, load in shown.items() if load != ShownLoad(None, None)}

    async def _heard_by_leader(self, runtime: TopicRuntime) -> dict[int, ShownLoad]:
        leader = self._parts.coordinator.leader()
        if leader is None or leader == self._parts.broker:
            return self.heard(runtime)
        # What the leader does not say is shown as not known.
        with contextlib.suppress(BraidError):
            url = self._parts.url_of(leader)
            return await self._parts.peers.shown_loads(url, runtime.topic, timeout_seconds=ASK_SECONDS)
        return {}
