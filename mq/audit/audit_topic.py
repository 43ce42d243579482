"""The topic `__audit`, which holds the audit trail. The first broker with something to record creates it."""

from filer.keys import AUDIT_TOPIC
from filer.topic.topic_config import Retention, TopicConfig
from mq.administration.own_topics import ensure_own
from mq.administration.topic_administration import TopicAdministration
from mq.audit.gathering import Gathering
from mq.audit.records import SCHEMA, rows_of
from mq.topic.topic_registry import TopicRegistry

RETENTION_SECONDS = 400 * 86_400
"""A year, and some time to look at it."""
CONFIG = TopicConfig(
    key_type=SCHEMA.key_type, value_type=SCHEMA.value_type, retention=Retention(seconds=RETENTION_SECONDS)
)


class AuditTopic:
    """Publishes records to the topic, for the broker of that id."""

    def __init__(self, topics: TopicRegistry, administration: TopicAdministration, broker: str) -> None:
        self._topics, self._administration, self._broker = topics, administration, broker

    async def store(self, records: Gathering) -> None:
        """Store records. Raises `BraidError`: then some may be on the store, or come there later."""
        runtime = await ensure_own(self._topics, self._administration, AUDIT_TOPIC, CONFIG, whose="audit records")
        rows = rows_of(records, self._broker)
        await runtime.publisher.publish_rows(rows, rows.nbytes)
