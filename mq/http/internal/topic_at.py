"""The topic of a call, at least as new as its caller knows it."""

from mq.broker import Broker
from mq.topic.topic_runtime import TopicRuntime


async def topic_at(broker: Broker, topic: str, version: int) -> TopicRuntime:
    """The topic as of that version of its record or a later one: the caller may know a newer one than this broker."""
    runtime = await broker.topics.topic(topic)
    if runtime.state.version < version:
        await runtime.refresh()
    return runtime
