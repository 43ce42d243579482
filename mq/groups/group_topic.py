"""The topic `__groups`, which holds what consumer groups must not forget. The broker that needs it first makes it."""

from filer.keys import GROUPS_TOPIC
from filer.topic.topic_config import TopicConfig
from mq.administration.topic_administration import TopicAdministration
from mq.base.errors import Conflict, NotFound
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime

CONFIG = TopicConfig(key_type="string", value_type="json", replicas=2, acks="replicated", rollup_bytes=4 * 1024 * 1024)
"""Keys are `<topic>/<group>`. Where there is one broker there is one replica, until others come. Roll-ups are small, as
whole files go once they lie below a floor. The rest is as for any topic: nothing expires by time or size, and segments
of busy groups split."""


async def ensure(topics: TopicRegistry, administration: TopicAdministration) -> TopicRuntime:
    """The running topic `__groups`, which is made if it is not there; any number of brokers may do so at once.

    Raises `Conflict` for a topic of that name that a user of an earlier version has made, and as
    `TopicAdministration.ensure`.
    """
    try:
        runtime = await topics.topic(GROUPS_TOPIC)
    except NotFound:
        runtime = await administration.ensure(GROUPS_TOPIC, CONFIG)
    config = runtime.state.config
    if (config.key_type, config.value_type) != (CONFIG.key_type, CONFIG.value_type):
        raise Conflict(
            "topic-conflict",
            f"topic {GROUPS_TOPIC!r} was made by a user of an earlier version: its keys are {config.key_type} and its "
            f"values {config.value_type}, where groups need {CONFIG.key_type} and {CONFIG.value_type}. Copy it to "
            "another topic and delete it through a broker of that version; then there are consumer groups",
        )
    return runtime
