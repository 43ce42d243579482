"""Calls to a follower of a segment: hold what the owner accepted, take the segment over."""

from starlette.types import Receive

from filer.errors import SegmentMoved
from filer.segment.next_file import Accepted
from filer.tracing import Carrier
from leader.transitions import SealedEnd
from mq.base.errors import CopyRefused, OutOfTouch
from mq.bodies.intake import Intake
from mq.broker import Broker
from mq.http.internal.topic_at import topic_at
from mq.peers.calls import Call, ToReplicate, ToSegmentAt
from mq.peers.part_batch import unpack_parts
from mq.peers.transport import PeerAnswer
from mq.topic.topic_runtime import TopicRuntime


class FollowerCalls:
    """The work of a segment's follower for other brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def replicate(self, call: Call[ToReplicate, int], asked: ToReplicate, receive: Receive) -> PeerAnswer:
        """Hold the messages that an owner accepted, until they are stored. Messages stored by now are dropped first.

        Raises `OutOfTouch` while this broker is out of touch with the cluster: the others may seal without asking it.
        The owner then acknowledges only stored messages.
        """
        broker, base = self._broker, asked.base
        buffers = broker.replica_buffers
        runtime = await topic_at(broker, asked.topic, asked.version)
        _check_follows(runtime, asked.segment, broker.id)
        buffers.take(asked.topic, asked.segment, (), asked.stored_end)
        with Intake(broker.front_store, broker.front_store.limit_bytes, None, wait=False) as intake:
            body = await intake.read(receive, None)
        # Both may have changed while the body arrived. From here on nothing is awaited.
        _check_follows(runtime, asked.segment, broker.id)
        if not broker.coordinator.in_touch():
            raise OutOfTouch(f"{broker.id} has lost touch with the cluster: it takes no more copies")
        entries: list[Accepted] = []
        traces: list[Carrier] = []
        for part, rows in unpack_parts(body, runtime.ref(asked.segment).schema.rows):
            entries.append(Accepted(rows, base, part.count, part.size_bytes, part.timestamp_us, part.request))
            traces += part.traces
            base += part.count
        with broker.tracer.resume("hold", asked.topic, traces) as span:
            span.note(segment=asked.segment)
            return call.pack(buffers.take(asked.topic, asked.segment, entries, asked.stored_end))

    async def take_over(self, call: Call[ToSegmentAt, SealedEnd], asked: ToSegmentAt, receive: Receive) -> PeerAnswer:
        """Seal a segment that we follow, in its owner's stead, with all messages that we hold of it.

        Only a follower may do that. A broker that was restarted at a follower's address holds nothing of the segment:
        its seal would cut off what the other followers hold.
        """
        runtime = await topic_at(self._broker, asked.topic, asked.version)
        found = runtime.state.segment(asked.segment)
        if found is not None and found.state == "sealed" and found.end_offset is not None:
            return call.pack(SealedEnd(found.end_offset, found.seal_offset, found.stored_bytes))
        _check_follows(runtime, asked.segment, self._broker.id)
        return call.pack(await self._broker.sealer.take_over(runtime, asked.segment))


def _check_follows(runtime: TopicRuntime, segment: int, broker: str) -> None:
    """Raise `CopyRefused` if the segment is not open any more, `SegmentMoved` if this broker does not follow it."""
    found = runtime.state.segment(segment)
    if found is None or found.state != "open":
        raise CopyRefused(f"segment {segment} of topic {runtime.topic!r} is not open any more")
    if broker not in found.brokers[1:]:
        # An earlier incarnation of this broker may have followed it. Its owner goes on until the leader gives it other
        # followers.
        raise SegmentMoved(f"segment {segment} of topic {runtime.topic!r} has no copy here")
