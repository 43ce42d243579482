"""Dead letters: messages that no consumer could work on, in a topic of their own."""

import asyncio

import pyarrow as pa

from filer.errors import InvalidConfig
from filer.event_log import EventLog
from filer.format.requests import RequestId
from filer.topic.topic_schema import schema_of
from filer.topic.topic_state import TopicState
from groups.queue.progress import QueueProgress
from groups.records import Dying
from mq.administration.topic_administration import TopicAdministration
from mq.base.end_tasks import raise_first
from mq.base.errors import NotFound
from mq.groups.dead_letter_rows import DELIVERIES, GROUP, GROUP_ID, ORIGIN, REASON, TOPIC, dead_letter
from mq.groups.group_source import GroupSource
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime

PAGE_BYTES = 8 * 1024 * 1024
AT_ONCE = 64
"""So many are on their way at once: each is a request of its own, and waits for the store."""

_log = EventLog(__name__)


def topic_group_refused(name: str) -> InvalidConfig:
    """Return the error for a topic that takes no dead letters: it is a topic group, or in one."""
    return InvalidConfig(
        f"dead letters cannot go to {name!r}, which is a topic group or in one: name a topic with segments of its own "
        "in dead_letter"
    )


def own_topic_refused(topic: str) -> InvalidConfig:
    """Return the error for a group whose dead letters would go to its own topic."""
    return InvalidConfig(
        f"dead letters of a group of topic {topic!r} cannot go to {topic!r} itself: the group would get them again; "
        "name another topic in dead_letter"
    )


def check_types(source: TopicState, letters: TopicState) -> None:
    """Raise `InvalidConfig` unless the topic `letters` takes the messages of `source` unchanged, as dead letters."""
    wanted, given = schema_of(letters), schema_of(source)
    if wanted.id != given.id:
        raise InvalidConfig(
            f"dead letters of topic {source.topic!r} cannot go to {letters.topic!r}: its keys are {wanted.key_type} "
            f"and its values {wanted.value_type}, not {given.key_type} and {given.value_type}; name another topic in "
            "dead_letter, or null for none"
        )


class DeadLetters:
    """Stores dead letters. Storing them again adds none: each has a sequence of its group."""

    def __init__(self, topics: TopicRegistry, administration: TopicAdministration) -> None:
        self._topics, self._administration = topics, administration

    async def store(self, source: GroupSource, group: str, progress: QueueProgress, dying: Dying) -> None:
        """Store the dead letters of messages that are given up.

        Messages that retention has removed meanwhile get none. Each message is a request of its own, so that a repeat
        finds the stored ones, whatever has been split since. Raises `BraidError`; then some of them may be stored.
        """
        target, topic = progress.settings.dead_letter, source.topic
        if target is None:
            _log.warning("messages_given_up", topic=topic, group=group, messages=dying.stop - dying.start)
            return
        letters = await self._topic_of(target.topic, await source.runtime())
        reader = await source.whole_reader()
        offset = dying.start
        while offset < dying.stop:
            run = await reader.read_segment(dying.segment, offset, max_rows=dying.stop - offset, max_bytes=PAGE_BYTES)
            if not run.table.num_rows:
                break
            first = run.end - run.table.num_rows
            count = min(run.table.num_rows, dying.stop - first)
            for start in range(0, count, AT_ONCE):
                publishing = (
                    self._publish(letters, run.table.slice(row, 1), (topic, group), progress, dying, first + row)
                    for row in range(start, min(start + AT_ONCE, count))
                )
                raise_first(await asyncio.gather(*publishing, return_exceptions=True))
            offset = run.end
        _log.warning(
            "dead_letters_stored",
            topic=topic,
            group=group,
            messages=dying.stop - dying.start,
            dead_letter_topic=target.topic,
            reason=dying.reason,
        )

    async def _topic_of(self, name: str, source: TopicRuntime) -> TopicRuntime:
        try:
            found = await self._topics.topic(name)
        except NotFound:
            settings = {"key_type": source.schema.key_type, "value_type": source.schema.value_type}
            found, _ = await self._administration.put(name, settings)
        if found.state.is_grouped:
            raise topic_group_refused(name)
        check_types(source.state, found.state)
        return found

    async def _publish(
        self,
        letters: TopicRuntime,
        row: pa.Table,
        source: tuple[str, str],
        progress: QueueProgress,
        dying: Dying,
        offset: int,
    ) -> None:
        about = {
            REASON: dying.reason,
            TOPIC: source[0],
            GROUP: source[1],
            GROUP_ID: progress.redrives.group_id,
            ORIGIN: f"{dying.segment}-{offset}",
            DELIVERIES: str(dying.delivery),
        }
        rows = dead_letter(row, letters.schema, about)
        sequence = dying.sequence + offset - dying.start
        await letters.publisher.publish_rows(rows, rows.nbytes, RequestId(f"group {progress.id}", sequence))
