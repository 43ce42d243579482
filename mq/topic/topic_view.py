"""A topic as users name it: one with segments of its own, or a member of a topic group."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from filer.errors import Remedy
from filer.format.requests import RequestId
from filer.format.schema import TOPIC_FIELD
from filer.topic.topic_state import TopicState
from mq.base.errors import Conflict
from mq.topic.topic_reads import TopicReads
from mq.topic.topic_runtime import TopicRuntime

_LENGTH_BYTES = 4
"""The length of each text in a column of Arrow."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """The running topic that has the messages, and the `member` whose messages are meant; None for all.

    Two views of the same are equal, as long as the topic runs.
    """

    runtime: TopicRuntime
    member: str | None = None

    @property
    def topic(self) -> str:
        """The name by which users know it."""
        return self.runtime.topic if self.member is None else self.member

    @property
    def state(self) -> TopicState:
        """The state of the topic that has the messages."""
        return self.runtime.state

    @property
    def reads(self) -> TopicReads:
        """What readers need from that topic."""
        return self.runtime.reads

    @property
    def is_whole_group(self) -> bool:
        """Whether it is a topic group, with all its members."""
        return self.member is None and self.state.is_grouped

    def check_is_published_to(self) -> None:
        """Raise `Conflict` for a topic group: its messages are published to its members."""
        if self.is_whole_group:
            remedy = Remedy("publish-to-member", topic_group=self.topic)
            raise Conflict("topic-group", f"{self.topic!r} is a topic group", remedy)

    @property
    def shown(self) -> TopicState:
        """The state as if a member were a topic by itself: its messages do not say to which member they belong."""
        if self.member is None:
            return self.state
        return self.state.model_copy(update={"topic": self.member, "group": None})

    def rows_of(self, published: pa.RecordBatch) -> pa.RecordBatch:
        """Return a publisher's rows as rows of the topic that gets them."""
        if self.member is None:
            return published
        return rows_of_members(published, pa.repeat(pa.scalar(self.member, TOPIC_FIELD.type), published.num_rows))

    def beside_bytes(self, rows: int) -> int:
        """Return how much more memory so many rows take than the publisher's own."""
        return 0 if self.member is None else rows * (len(self.member) + _LENGTH_BYTES)

    def request_of(self, request: RequestId | None) -> RequestId | None:
        """Return the id of a publisher's request, as the topic's segments remember it.

        A producer counts for each topic by itself, and members share segments. No name of a topic has a slash in it.
        """
        if self.member is None or request is None:
            return request
        return RequestId(f"{self.member}/{request.producer}", request.sequence, request.owner)


def rows_of_members(published: pa.RecordBatch, members: pa.Array) -> pa.RecordBatch:
    """Return rows published to members of a topic group as its rows: each names its member."""
    return pa.RecordBatch.from_arrays([*published.columns, members], schema=published.schema.append(TOPIC_FIELD))


def as_shown(view: TopicView, table: pa.Table) -> pa.Table:
    """Return the view's own messages as it shows them: a member's do not name their member."""
    is_told = view.member is not None and TOPIC_FIELD.name in table.column_names
    return table.drop_columns([TOPIC_FIELD.name]) if is_told else table


def of_member(table: pa.Table, member: str) -> pa.Table:
    """Return the messages of that member among those of its group, without the column that says so."""
    names = table[TOPIC_FIELD.name]
    return table.filter(pc.equal(names, member)).drop_columns([TOPIC_FIELD.name])
