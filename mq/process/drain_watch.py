"""Logs what a draining broker waits for."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from filer.event_log import EventLog
from mq.broker import Broker
from mq.topic.topic_runtime import TopicRuntime

LOG_SECONDS = 5.0
MOST_NAMED = 5

_log = EventLog(__name__)


async def log_what_is_left(broker: Broker, requests: Callable[[], Sequence[str]]) -> None:
    """Log every few seconds which segments, copies and requests the broker waits for, until cancelled."""
    began_seconds = broker.clock.monotonic_seconds()
    while True:
        await broker.clock.sleep(LOG_SECONDS)
        seconds = broker.clock.monotonic_seconds() - began_seconds
        _log.warning("drain_waits", duration_seconds=round(seconds, 3), left=what_is_left(broker, requests()))


def what_is_left(broker: Broker, requests: Sequence[str] = ()) -> str:
    """Return what a draining broker still waits for, in words; the first few things only."""
    left = [thing for runtime in broker.topics.values() for thing in islice(_left_of(broker, runtime), MOST_NAMED + 1)]
    if broker.draining.is_set():
        left += [f"the copy of segment {i} of topic {topic!r}" for topic, i in broker.replica_buffers.held()]
    left += requests
    return ", ".join(left[:MOST_NAMED]) + (", …" if len(left) > MOST_NAMED else "") or "connections to close"


def _left_of(broker: Broker, runtime: TopicRuntime) -> Iterator[str]:
    """All segments of this broker until others have taken over; then those with messages that are not stored."""
    for segment in runtime.state.open_segments:
        writer = runtime.writers.get(segment.id)
        unstored = 0 if writer is None else sum(each.count for each in writer.unstored(0, writer.accepted_end))
        if broker.id in segment.brokers and (unstored or not broker.draining.is_set()):
            role = "followed" if writer is None else f"{writer.state.value}, {unstored} messages not stored"
            yield f"segment {segment.id} of topic {runtime.topic!r} ({role})"
