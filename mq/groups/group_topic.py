"""The topic `__groups`, which holds what consumer groups must not forget. The first broker to need it creates it."""

from filer.keys import GROUPS_TOPIC
from filer.topic.topic_config import TopicConfig
from mq.administration.own_topics import ensure_own
from mq.administration.topic_administration import TopicAdministration
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime

CONFIG = TopicConfig(key_type="string", value_type="json", replicas=2, acks="replicated", rollup_bytes=4 * 1024 * 1024)
"""Keys are `<topic>/<group>`. A single broker keeps one replica, until others come. Roll-ups are small, since
whole files go once they lie below a floor. The rest is as for any topic: nothing expires by time or size, and segments
of busy groups split."""


async def ensure(topics: TopicRegistry, administration: TopicAdministration) -> TopicRuntime:
    """Return the running topic `__groups`; creates it if it is missing. Raises as `ensure_own`."""
    return await ensure_own(topics, administration, GROUPS_TOPIC, CONFIG, whose="groups")
