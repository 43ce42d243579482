"""What the messages of a topic are. Who looks at its record alone needs no Arrow, and so no part of this."""

from typing import TYPE_CHECKING

from filer.format.schema import MessageSchema

if TYPE_CHECKING:
    from filer.topic.topic_state import TopicState


def schema_of(state: "TopicState") -> MessageSchema:
    """The schema of a topic with this record."""
    return MessageSchema.of(state.config.key_type, state.config.value_type, grouped=state.group is not None)
