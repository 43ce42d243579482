"""The topics that brokers create for themselves: the first one to need a topic creates it."""

from filer.topic.topic_config import TopicConfig
from mq.administration.topic_administration import TopicAdministration
from mq.base.errors import Conflict, NotFound
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime


async def ensure_own(
    topics: TopicRegistry, administration: TopicAdministration, name: str, wanted: TopicConfig, *, whose: str
) -> TopicRuntime:
    """Return the running topic; creates it if it is missing. Any number of brokers may do so at once.

    Raises `Conflict` for a topic of that name that a user of an earlier version has created, and as
    `TopicAdministration.ensure`.
    """
    try:
        runtime = await topics.topic(name)
    except NotFound:
        runtime = await administration.ensure(name, wanted)
    config = runtime.state.config
    if (config.key_type, config.value_type) != (wanted.key_type, wanted.value_type):
        raise Conflict(
            "topic-conflict",
            f"topic {name!r} was made by a user of an earlier version: its keys are {config.key_type} and its values "
            f"{config.value_type}, where {whose} need {wanted.key_type} and {wanted.value_type}. Copy it to "
            f"another topic and delete it through a broker of that version; then there are {whose}",
        )
    return runtime
