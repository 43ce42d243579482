"""Seals segments: by the owner, else by a follower, else, once all of them are gone, at the end of the log."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from filer.clock import Clock
from filer.errors import OutcomeUnknown, SegmentMoved, UnreadableObject
from filer.segment.next_file import Accepted
from filer.segment.take_over import flush_and_seal
from filer.stores.store import Store
from filer.topic.topic_state import Segment, TopicState
from leader.membership.coordinator import Coordinator
from leader.membership.missing_brokers import MARGIN_SHARE
from leader.transitions import SealedEnd
from mq.base.errors import CopyRefused, PeerFailed, PeerUnreachable
from mq.peers.peers import Peers
from mq.replication.replica_buffers import ReplicaBuffers
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.transitions.hedged_call import hedged_call

OWNER_SEAL_SECONDS = 5.0
"""An owner that does not answer for so long may be paused. Then a follower, or the store, seals without it."""
OWNER_SEAL_SHARE = 0.5
"""The same as a share of the session time-out, if that is less."""
TAKE_OVER_SECONDS = 30.0
NEXT_FOLLOWER_SECONDS = 1.0
"""A follower that has not sealed for so long may be paused: the next follower is asked as well."""


class SegmentSealer:
    """Seals segments of any topic. It is the `Sealer` of this broker's `TransitionRunner`.

    `broker` is the id of this one. `last_url_of` returns the present or last known address of a broker: a broker that
    is not announced may be alive. `recorded_end` is an offset that a segment of a topic is known to have reached.
    """

    def __init__(
        self,
        *,
        broker: str,
        store: Store,
        clock: Clock,
        coordinator: Coordinator,
        peers: Peers,
        replicas: ReplicaBuffers,
        topics: TopicRegistry,
        last_url_of: Callable[[str], str | None],
        recorded_end: Callable[[str, int], int],
        grace_seconds: float,
    ) -> None:
        self._recorded_end = recorded_end
        self._broker, self._store, self._clock, self._coordinator = broker, store, clock, coordinator
        self._peers, self._replicas, self._topics = peers, replicas, topics
        self._last_url_of, self._grace_seconds = last_url_of, grace_seconds
        self._missed_since_seconds: dict[tuple[str, int, str], float] = {}

    async def seal(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd:
        """As `Sealer.seal`: by its owner; else by a follower; else, if all of them are gone, at the end of its log.

        The store lets only one broker seal. If an owner still writes, one of two things happens. Its file comes first,
        and the seal goes behind it. Or the seal takes the name of its next file, and the owner stores nothing more.
        Messages that were acknowledged because the followers hold them are stored by the follower, which refuses the
        owner before it looks at what it holds. So while a follower or the owner of a replicated segment may be alive
        and has not sealed it, no other broker seals it: `OutcomeUnknown` is raised then.
        """
        self._topics.apply(state)
        runtime = self._topics[topic]
        if segment.id in runtime.writers:
            return await self.seal_owned(runtime, segment.id)
        if (end := await self._seal_by_owner(topic, segment, state)) is not None:
            return end
        self._forget_missed()
        if (end := await self._seal_by_followers(runtime, segment, state)) is not None:
            return end
        replicated = segment.brokers if len(segment.brokers) > 1 else ()
        if silent := [broker for broker in replicated if not self._is_gone(topic, segment, broker)]:
            raise OutcomeUnknown(f"segment {segment.id} of topic {topic!r}: no answer from {', '.join(silent)}")
        return await self._flush_and_seal(runtime, segment.id, ())

    # -- by this broker ------------------------------------------------------------------------------------

    async def seal_owned(self, runtime: TopicRuntime, segment: int) -> SealedEnd:
        """Seal a segment that this broker owns, or owned until its writer stopped.

        An observer of the segment has its last word first. Messages of a stopped writer that the followers hold are
        stored with the seal. Stopped before the put of the seal, nothing has happened to the segment; stopped after it,
        the next call finds the seal.
        """
        writer = runtime.writers[segment]
        if (last_word := runtime.last_word(segment)) is not None:
            await last_word
        # For whatever reason the writer stopped, its segment is sealed at the end of its log.
        with contextlib.suppress(Exception):
            end_offset = await writer.seal()
            return SealedEnd(end_offset, writer.index.seal_offset, writer.index.stored_bytes)
        # Messages that the writer has acknowledged are part of the log, whatever the store has lost of it since.
        return await self._flush_and_seal(runtime, segment, writer.unflushed, known_end=writer.index.end)

    async def take_over(self, runtime: TopicRuntime, segment: int) -> SealedEnd:
        """Seal a segment that this broker follows: refuse its owner, then store the held messages of the segment.

        Stopped in between, the messages that were acknowledged to the owner are still with the owner or the other
        followers, as after any end of this broker. Messages that were stored before count: the seal comes behind them.
        """
        return await self._flush_and_seal(runtime, segment, self._replicas.refuse(runtime.topic, segment))

    async def _flush_and_seal(
        self, runtime: TopicRuntime, segment_id: int, held: Sequence[Accepted], *, known_end: int = 0
    ) -> SealedEnd:
        segment = runtime.state.segment(segment_id)
        known_end = max(known_end, self._recorded_end(runtime.topic, segment_id))
        if segment is None:
            raise SegmentMoved(f"topic {runtime.topic!r} has no segment {segment_id} any more")
        index = await flush_and_seal(
            self._store,
            self._clock,
            runtime.ref(segment_id),
            held,
            start_offset=segment.start_offset,
            writer=self._broker,
            grace_seconds=self._grace_seconds,
            inherit=partial(runtime.inherited, segment),
            known_end=known_end,
        )
        runtime.adopt_index(segment_id, index)
        return SealedEnd(index.end, index.seal_offset, index.stored_bytes)

    # -- by other brokers ----------------------------------------------------------------------------------

    async def _seal_by_owner(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd | None:
        """Return the end if the owner has sealed; None if it is silent, or answers "not yet" for too long.

        The store may be slow for all brokers: sealing without the owner would then only add work for it. Or the owner
        alone may have lost the store: so it gets no longer than a silent owner takes to lose its session.

        The end in its answer is recorded without a look at the store. An owner returns it only once the store has the
        seal. With keys of brokers, the answer is known to come from a broker, and to answer this very call. Any other
        sender's answer is `PeerUnproven`, an unknown outcome, and the segment is sealed by others, as if there were no
        answer.
        """
        session_seconds = self._coordinator.session_timeout_seconds
        if session_seconds <= 0:
            return None  # there are no other brokers
        url = self._last_url_of(segment.owner)
        timeout_seconds = min(OWNER_SEAL_SECONDS, session_seconds * OWNER_SEAL_SHARE)
        deadline_seconds = self._clock.monotonic_seconds() + max(OWNER_SEAL_SECONDS, session_seconds)
        # An owner that cannot read an object is like a silent one: this broker looks for itself.
        with contextlib.suppress(PeerUnreachable, PeerFailed, SegmentMoved, OutcomeUnknown, UnreadableObject):
            while self._clock.monotonic_seconds() < deadline_seconds:
                end = await self._peers.seal(url, topic, segment.id, state.version, timeout_seconds=timeout_seconds)
                if end is not None:
                    return end
        return None

    async def _seal_by_followers(self, runtime: TopicRuntime, segment: Segment, state: TopicState) -> SealedEnd | None:
        """Return the end once a follower has sealed; None if no follower can.

        A paused follower delays the next one for a moment only. Several may then seal at the same time. Each holds
        everything that was acknowledged because the followers hold it, at the same offsets, and the store takes each
        name and one seal only once: so they come to the same end. A follower whose answer is no longer awaited may go
        on or stop (`flush_and_seal`).
        """
        calls = [partial(self._seal_by_follower, runtime, each, segment, state) for each in segment.brokers[1:]]
        return await hedged_call(self._clock, calls, patience_seconds=NEXT_FOLLOWER_SECONDS)

    async def _seal_by_follower(
        self, runtime: TopicRuntime, follower: str, segment: Segment, state: TopicState
    ) -> SealedEnd | None:
        # A follower that fails, this broker included, does not keep the others from sealing.
        with contextlib.suppress(PeerUnreachable, PeerFailed, SegmentMoved, OutcomeUnknown, CopyRefused):
            if follower == self._broker:
                return await self.take_over(runtime, segment.id)
            url = self._last_url_of(follower)
            with contextlib.suppress(UnreadableObject):
                return await self._peers.take_over(
                    url, runtime.topic, segment.id, state.version, timeout_seconds=TAKE_OVER_SECONDS
                )
        return None

    # -- which brokers are gone ----------------------------------------------------------------------------

    def _is_gone(self, topic: str, segment: Segment, broker: str) -> bool:
        """Whether a broker that did not answer is gone: its session ended at least a margin ago.

        A broker that is cut off from ZooKeeper cannot know that, because brokers that it has never heard of may have
        joined the others. The margin gives a broker that has lost touch the time to store what it holds.

        The broker must be seen to be missing after the transition was recorded. That is so because this method first
        misses it after that. If it comes back later, it reads the record before it acknowledges by its followers again
        (`ReplicationLease`).
        """
        key = (topic, segment.id, broker)
        live = {info.id for info in self._coordinator.brokers()}
        if not self._coordinator.in_touch() or broker in live:
            self._missed_since_seconds.pop(key, None)
            return False
        now_seconds = self._clock.monotonic_seconds()
        since_seconds = self._missed_since_seconds.setdefault(key, now_seconds)
        margin_seconds = self._coordinator.session_timeout_seconds * MARGIN_SHARE
        return now_seconds - since_seconds >= margin_seconds and self._coordinator.seen_seconds > since_seconds

    def _forget_missed(self) -> None:
        """Forget missing brokers of segments that were sealed, here or by others."""
        for key in list(self._missed_since_seconds):
            segment = self._topics[key[0]].state.segment(key[1])
            if segment is None or segment.state != "open":
                del self._missed_since_seconds[key]
