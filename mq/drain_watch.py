"""While a broker drains: what it waits for, in its log, before anybody's patience with it is at an end."""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from mq.broker import Broker
from mq.topic_runtime import TopicRuntime

TELL_SECONDS = 5.0
SHOWN = 5

_log = logging.getLogger(__name__)


async def tell_what_is_left(broker: Broker, requests: Callable[[], Sequence[str]]) -> None:
    """Log every few seconds what the broker waits for, its own and these requests, until cancelled."""
    began_seconds = broker.clock.monotonic_seconds()
    while True:
        await broker.clock.sleep(TELL_SECONDS)
        seconds = broker.clock.monotonic_seconds() - began_seconds
        _log.warning("shutting down for %.0f s, waiting for %s", seconds, what_is_left(broker, requests()))


def what_is_left(broker: Broker, requests: Sequence[str] = ()) -> str:
    """The first of what a broker that drains has not done yet, in words."""
    left = [thing for runtime in broker.topics.values() for thing in islice(_left_of(broker, runtime), SHOWN + 1)]
    if broker.draining.is_set():
        left += [f"the copy of segment {i} of topic {topic!r}" for topic, i in broker.parts.copies.held()]
    left += requests
    return ", ".join(left[:SHOWN]) + (", …" if len(left) > SHOWN else "") or "connections to close"


def _left_of(broker: Broker, runtime: TopicRuntime) -> Iterator[str]:
    """Until others have taken over, all segments that have this broker; then those whose messages it stores yet."""
    for segment in runtime.state.open_segments:
        writer = runtime.writers.get(segment.id)
        unstored = 0 if writer is None else sum(each.count for each in writer.unstored(0, writer.accepted_end))
        if broker.id in segment.brokers and (unstored or not broker.draining.is_set()):
            role = "followed" if writer is None else f"{writer.state.value}, {unstored} messages not stored"
            yield f"segment {segment.id} of topic {runtime.topic!r} ({role})"
