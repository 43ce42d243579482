"""The schema of a topic's messages. It is apart from the topic's record, whose readers need no Arrow."""

from typing import TYPE_CHECKING

from filer.format.schema import MessageSchema

if TYPE_CHECKING:
    from filer.topic.topic_state import TopicState


def schema_of(state: "TopicState") -> MessageSchema:
    """The schema of a topic with this record."""
    return MessageSchema.of(state.config.key_type, state.config.value_type, grouped=state.group is not None)
