"""How this broker changes the shape of topics: for itself, for users, and while it leads for the whole cluster."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from filer.errors import BraidError, OutcomeUnknown, SegmentMoved
from filer.next_file import Accepted
from filer.take_over import flush_and_seal
from filer.topic_config import TopicConfig
from filer.topic_state import Reason, Segment, TopicState
from leader.broker_loads import carried, weights_of
from leader.cut_points import Cut, SlotLoads
from leader.leading import MARGIN_SHARE
from leader.load_table import LoadTable
from leader.placement import choose, owned, replacements
from leader.successors import reshaped
from leader.transitions import Place, SealedEnd, TransitionRunner, deleting, loading, replacing
from mq.errors import CopyRefused, Draining, PeerFailed, PeerUnreachable
from mq.first_answer import first_answer
from mq.load_hand_over import LoadHandOver
from mq.parts import Parts
from mq.peers import MOST_RECORD_BYTES
from mq.topic_runtime import TopicRuntime

# An owner that does not answer may be paused: the store, or a follower, decides against it.
OWNER_SEAL_SECONDS = 5.0
OWNER_SEAL_SHARE = 0.5
TAKE_OVER_SECONDS = 30.0
# A follower that has not sealed for so long may be paused: the next is asked as well.
NEXT_FOLLOWER_SECONDS = 1.0
# A record goes out with the news of it until that adds up to as much, first to those for whom it opens segments.
TOLD_BYTES = 8 * 1024 * 1024


class Topics(Protocol):
    """The running topics of a broker."""

    @property
    def topics(self) -> Mapping[str, TopicRuntime]:
        """By name, deleted ones included."""
        ...

    @property
    def draining(self) -> asyncio.Event:
        """Set once nothing new is to be begun."""
        ...

    def see(self, state: TopicState) -> None:
        """Take a newer state of a topic into account."""
        ...


class TransitionArm:
    """Runs transitions, one at a time per topic here; elsewhere the compare-and-swap keeps others from it.

    It is the `Sealer` of its own runner and the `Arm` of a leader. `on_unfinished` is called with the topic's name when
    a transition may have begun and did not come to its end. While this broker leads, `table` says what others carry.
    """

    def __init__(self, parts: Parts, topics: Topics, table: LoadTable, *, on_unfinished: Callable[[str], None]) -> None:
        self._parts, self._topics, self._table, self._on_unfinished = parts, topics, table, on_unfinished
        self._runner = TransitionRunner(parts.catalogue, self, parts.clock)
        self._loads = LoadHandOver(parts, topics)
        self._changing: dict[str, asyncio.Lock] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._missed_seconds: dict[tuple[str, int, str], float] = {}

    def lock(self, topic: str) -> asyncio.Lock:
        """Whoever changes a topic's record here holds it."""
        return self._changing.setdefault(topic, asyncio.Lock())

    async def close(self) -> None:
        """Stop telling others."""
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def place(self, topic: str, config: TopicConfig, count: int) -> Place:
        """Who gets each of `count` new segments of a topic."""
        # New segments have no ids yet: by ids that none has they weigh as any other.
        brokers, weights = self._parts.coordinator.brokers(), self._weights(topic, range(-count, 0))
        placed = choose(brokers, self._carried(), list(weights.values()), replicas=config.replicas, salt=topic)
        return placed.__getitem__

    def _knows_loads(self) -> bool:
        return self._parts.coordinator.leads() and bool(self._table.owners)

    def _carried(self) -> dict[str, float]:
        """What each broker carries: by load while we lead, else how many segments it owns of topics known here."""
        if self._knows_loads():
            return carried(self._table)
        return dict(owned(runtime.state for runtime in self._topics.topics.values()))

    def _weights(self, topic: str, segments: Iterable[int]) -> dict[int, float]:
        """What segments weigh in that, by id; those that are not known are as any other."""
        return weights_of(self._table, topic, segments) if self._knows_loads() else dict.fromkeys(segments, 1.0)

    async def delete(self, topic: str) -> None:
        """Seal everything and leave a tombstone."""
        async with self.lock(topic):
            state = await self._run(topic, lambda s: deleting(s, now_us=self._parts.clock.now_us()))
            while state is not None and not state.deleted:
                state = await self._run(topic, lambda s: deleting(s, now_us=self._parts.clock.now_us()))

    async def change(self, topic: str, begin: Callable[[TopicState], TopicState | None]) -> TopicState | None:
        """Begin a transition unless another is under way, and bring the one that is to its end.

        Stopped at any line it has begun or it has not: that is one compare-and-swap of topic.json, whose record names
        what is sealed and all successors, with their ids. Whoever finds it there goes on with it, and opens no others.
        """
        async with self.lock(topic):
            return await self._run(topic, begin)

    async def finish_transition(self, topic: str) -> TopicState | None:
        """As `Arm.finish_transition`."""
        return await self.change(topic, lambda state: None)

    async def give_successors(
        self, topic: str, segments: Sequence[int], reason: Reason, owners: Mapping[int, str] | None = None
    ) -> TopicState | None:
        """As `Arm.give_successors`; a live owner that does not drain keeps what `owners` does not name."""
        known = await self._loads.collect(topic, segments) if reason in ("move", "drain") else {}
        state = await self.change(topic, lambda state: self._replaced(state, segments, reason, owners))
        if state is not None and known:
            self._in_background(self._loads.deliver(state, known))
        return state

    async def reshape(self, topic: str, cuts: Mapping[int, Cut], pairs: Sequence[tuple[int, int]]) -> TopicState | None:
        """As `ReshapingArm.reshape`. Safe to stop at any line, as `change`: asked again, what is sealed is left out."""
        return await self.change(topic, lambda state: self._reshaped(state, cuts, pairs))

    def _reshaped(
        self, state: TopicState, cuts: Mapping[int, Cut], pairs: Sequence[tuple[int, int]]
    ) -> TopicState | None:
        sealing = [*cuts, *(segment for pair in pairs for segment in pair)]
        return reshaped(
            state,
            cuts,
            pairs,
            brokers=self._parts.coordinator.brokers(),
            carried=self._carried(),
            weights=self._weights(state.topic, sealing),
            now_us=self._parts.clock.now_us(),
        )

    async def slot_loads(self, topic: str, segment: Segment) -> SlotLoads | None:
        """As `ReshapingArm.slot_loads`."""
        runtime = self._topics.topics.get(topic)
        if segment.owner == self._parts.broker:
            return None if runtime is None else runtime.loads.slot_loads(segment.id)
        # Whoever decides goes without; what is not our owner's answer is as good as none.
        with contextlib.suppress(BraidError):
            return await self._parts.peers.slot_loads(self._parts.url_of(segment.owner), topic, segment.id)
        return None

    async def load(self, topic: str, load_id: str, ends: Mapping[int, SealedEnd]) -> TopicState | None:
        """Have a load adopted that was checked and sealed at these ends; the state then, whatever has become of it.

        Safe to stop at any line, as `change`: the record has the ends, and nobody asks for the load's files again.
        Whoever owns a segment goes on with its successor, unless it is gone or drains.
        """

        def begin(state: TopicState) -> TopicState | None:
            sealing = state.open_segments
            placed = self._places(state, sealing, None)
            if len(placed) < len(sealing):
                return None
            now_us = self._parts.clock.now_us()
            return loading(state, load_id, ends, lambda n: placed[sealing[n].id], now_us=now_us)

        return await self.change(topic, begin)

    async def mend(self, topic: str, is_orphan: Callable[[Segment], bool], reason: Reason) -> None:
        """Bring whatever transition is under way to its end, then give each orphaned open segment a successor.

        Safe to stop anywhere and to repeat, by anyone: both are transitions, whose every step is.
        """
        async with self.lock(topic):
            state = await self._run(topic, lambda state: None)
            if state is not None and (lost := [s.id for s in state.open_segments if is_orphan(s)]):
                await self._run(topic, lambda state: self._replaced(state, lost, reason, None))

    def _replaced(
        self, state: TopicState, segments: Sequence[int], reason: Reason, owners: Mapping[int, str] | None
    ) -> TopicState | None:
        sealing = [s for s in state.open_segments if s.id in segments]
        placed = self._places(state, sealing, owners)
        if len(placed) < len(sealing):
            return None
        return replacing(state, segments, lambda n: placed[sealing[n].id], reason, now_us=self._parts.clock.now_us())

    def _places(
        self, state: TopicState, sealing: Sequence[Segment], owners: Mapping[int, str] | None
    ) -> dict[int, tuple[str, ...]]:
        weights = self._weights(state.topic, [s.id for s in sealing])
        brokers = self._parts.coordinator.brokers()
        return replacements(state, sealing, brokers, self._carried(), weights, owners=owners)

    async def _run(self, topic: str, begin: Callable[[TopicState], TopicState | None]) -> TopicState | None:
        if self._topics.draining.is_set():
            raise Draining("this broker is shutting down: ask another, or wait until it is back")
        begun: list[TopicState | None] = [None]

        def noted(state: TopicState) -> TopicState | None:
            begun[0] = begin(state)
            if begun[0] is not None:
                self._table.expect(begun[0])
            return begun[0]

        before = self._topics.topics.get(topic)
        version = before.state.version if before is not None else None
        try:
            state = await self._runner.run(topic, noted)
        except BraidError:
            # It may have begun, and its segments take no more: it must not wait for the next start.
            self._on_unfinished(topic)
            raise
        finally:
            self._table.release(topic)
        if begun[0] is not None and begun[0].transition is not None:
            self._parts.metrics.transitions.labels(topic, begun[0].transition.reason).inc()
        if state is not None:
            self._topics.see(state)
            if self._parts.coordinator.leads():
                self._table.see(state)
            if state.version != version:
                self.tell(state)
        return state

    # -- the others ----------------------------------------------------------------------------------------

    def tell(self, state: TopicState) -> None:
        """Let the other brokers know of a newer record: those that own something new can begin at once.

        They get it with the news, as far as it is not too much to send: publishers wait for them to have it.
        """
        if not self._parts.clustered:
            return
        self._parts.coordinator.announce(state.topic)
        record = state.to_json()
        newest = max((segment.opened_us for segment in state.open_segments), default=0)
        owners = {segment.owner for segment in state.open_segments if segment.opened_us == newest}
        others = [each for each in self._parts.coordinator.brokers() if each.id != self._parts.broker]
        room_bytes = TOLD_BYTES if len(record) <= MOST_RECORD_BYTES else 0
        for broker in sorted(others, key=lambda each: each.id not in owners):
            room_bytes -= len(record)
            self._in_background(self._tell_one(broker.url, state, record if room_bytes >= 0 else b""))

    def _in_background(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(telling)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_one(self, url: str, state: TopicState, record: bytes) -> None:
        # A hint: whoever does not get it reads the record when it is asked for the segment.
        with contextlib.suppress(BraidError):
            await self._parts.peers.refresh(url, state.topic, state.version, record)

    # -- sealing -------------------------------------------------------------------------------------------

    async def seal(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd:
        """As `Sealer.seal`: by its owner; else by a follower; else, where all of them are gone, at the end of its log.

        The store lets only one of them seal: an owner that still writes either comes before the other's seal, which
        then goes behind its file, or loses the name of its next file to it and stores nothing more. What it has
        acknowledged by its followers' holding it is stored by the follower, which refuses it before it looks. So
        nobody seals for a segment with followers while one of them, or the owner, may be alive and has not done so.
        Raises `OutcomeUnknown` then.
        """
        self._topics.see(state)
        runtime = self._topics.topics[topic]
        if segment.id in runtime.writers:
            return await self.seal_ours(runtime, segment.id)
        if (end := await self._sealed_by_owner(topic, segment, state)) is not None:
            return end
        self._forget_missed()
        if (end := await self._sealed_by_followers(runtime, segment, state)) is not None:
            return end
        replicated = segment.brokers if len(segment.brokers) > 1 else ()
        if silent := [broker for broker in replicated if not self._is_gone(topic, segment, broker)]:
            raise OutcomeUnknown(f"segment {segment.id} of topic {topic!r}: no answer from {', '.join(silent)}")
        return await self._flush_and_seal(runtime, segment.id, ())

    async def seal_ours(self, runtime: TopicRuntime, segment: int) -> SealedEnd:
        """Seal a segment that we own, or owned until its writer stopped, with what its followers hold besides us.

        Stopped before the seal's put, nothing has happened to the segment; after it, whoever asks next finds the seal.
        """
        writer = runtime.writers[segment]
        # Whatever stopped the writer, its segment is sealed at the end of its log.
        with contextlib.suppress(Exception):
            end_offset = await writer.seal()
            return SealedEnd(end_offset, writer.index.seal_offset, writer.index.stored_bytes)
        return await self._flush_and_seal(runtime, segment, writer.unflushed)

    async def take_over(self, runtime: TopicRuntime, segment: int) -> SealedEnd:
        """Seal a segment that we follow: refuse its owner, then store what we hold of it.

        Stopped in between, what we had acknowledged to its owner is with the owner or with the other followers still,
        as after any end of ours; what we have stored of it by then counts, and whoever seals comes behind that.
        """
        return await self._flush_and_seal(runtime, segment, self._parts.copies.refuse(runtime.topic, segment))

    def _is_gone(self, topic: str, segment: Segment, broker: str) -> bool:
        """Its session ended a margin ago, and it does not answer (whoever asks has tried).

        Who is cut off cannot tell: the others may have been joined by brokers that it has never heard of. The margin
        is for what a broker that has lost touch stores.

        It must be seen to be missing after the transition was recorded, which it is when it is first missed here. Where
        it comes back later it reads that record before it answers by its followers again (`Standing`).
        """
        coordinator, place = self._parts.coordinator, (topic, segment.id, broker)
        if not coordinator.in_touch() or self._parts.url_of(broker) is not None:
            self._missed_seconds.pop(place, None)
            return False
        now_seconds = self._parts.clock.monotonic_seconds()
        since_seconds = self._missed_seconds.setdefault(place, now_seconds)
        margin_seconds = coordinator.session_timeout_seconds * MARGIN_SHARE
        return now_seconds - since_seconds >= margin_seconds and coordinator.seen_seconds > since_seconds

    def _forget_missed(self) -> None:
        """Forget who is missed from segments that have been sealed, here or by others."""
        for place in list(self._missed_seconds):
            segment = self._topics.topics[place[0]].state.segment(place[1])
            if segment is None or segment.state != "open":
                del self._missed_seconds[place]

    async def _sealed_by_owner(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd | None:
        """The end of it where the owner has sealed it; None where it is silent, or says for too long that it is at it.

        The store may be slow for everybody: then whoever decided against the owner would only make more work for it. It
        may be away for the owner alone, so the owner has no longer for it than a silent one takes to lose its session.
        """
        if not self._parts.clustered:
            return None
        url = self._parts.last_url_of(segment.owner)
        session_seconds = self._parts.coordinator.session_timeout_seconds
        timeout_seconds = min(OWNER_SEAL_SECONDS, session_seconds * OWNER_SEAL_SHARE)
        deadline = self._parts.clock.monotonic_seconds() + max(OWNER_SEAL_SECONDS, session_seconds)
        with contextlib.suppress(PeerUnreachable, PeerFailed, SegmentMoved, OutcomeUnknown):
            while self._parts.clock.monotonic_seconds() < deadline:
                end = await self._parts.peers.seal(
                    url, topic, segment.id, state.version, timeout_seconds=timeout_seconds
                )
                if end is not None:
                    return end
        return None

    async def _sealed_by_followers(
        self, runtime: TopicRuntime, segment: Segment, state: TopicState
    ) -> SealedEnd | None:
        """By whichever follower has done it first; None where none of them can.

        A paused one keeps the next waiting for a moment only. Several may be at it then: each has all that was
        acknowledged by the followers' holding it, at the same offsets, and the store takes each name and one seal, so
        they come to the same end. Who is not waited for any more goes on or stops, as it likes (`flush_and_seal`).
        """
        asks = [partial(self._sealed_by_follower, runtime, each, segment, state) for each in segment.brokers[1:]]
        return await first_answer(self._parts.clock, asks, patience_seconds=NEXT_FOLLOWER_SECONDS)

    async def _sealed_by_follower(
        self, runtime: TopicRuntime, follower: str, segment: Segment, state: TopicState
    ) -> SealedEnd | None:
        # One that cannot, be it ourselves, keeps none of the others from it.
        with contextlib.suppress(PeerUnreachable, PeerFailed, SegmentMoved, OutcomeUnknown, CopyRefused):
            if follower == self._parts.broker:
                return await self.take_over(runtime, segment.id)
            url = self._parts.last_url_of(follower)
            return await self._parts.peers.take_over(
                url, runtime.topic, segment.id, state.version, timeout_seconds=TAKE_OVER_SECONDS
            )
        return None

    async def _flush_and_seal(self, runtime: TopicRuntime, segment_id: int, held: Sequence[Accepted]) -> SealedEnd:
        segment = runtime.state.segment(segment_id)
        if segment is None:
            raise SegmentMoved(f"topic {runtime.topic!r} has no segment {segment_id} any more")
        index = await flush_and_seal(
            self._parts.store,
            self._parts.clock,
            runtime.ref(segment_id),
            held,
            start_offset=segment.start_offset,
            writer=self._parts.broker,
            grace_seconds=self._parts.settings.grace,
            inherit=partial(runtime.inherited, segment),
        )
        runtime.adopt_index(segment_id, index)
        return SealedEnd(index.end, index.seal_offset, index.stored_bytes)
