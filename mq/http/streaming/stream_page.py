"""One page of a topic for subscriptions: rendered parts, and the positions behind them."""

from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from filer.errors import UnreadableObject
from filer.topic.positions import Positions, to_marker
from mq.forms.large_values import Aside
from mq.forms.render import MessageRenderer, Part, Written
from mq.forms.stream_forms import StreamForm
from mq.limits.read_budget import ReadLease
from mq.limits.steps import Steps
from mq.topic.run import Run
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_view import TopicView


class Counted(NamedTuple):
    """A page's messages and bytes of one segment."""

    segment: int
    messages: int
    size_bytes: int


class StreamPage:
    """A page that any number of streams send. It holds its room of the read budget until the last has dropped it.

    A context manager, which drops it once. Its maker uses it, and so does each stream that gets it from `StreamPages`.
    `reached` are the positions behind it. `unreadable` is the error that kept it from going on. A page without messages
    from which one `may_go_on` at once has passed messages of other members of a topic group.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        reached: Positions,
        counted: Sequence[Counted],
        unreadable: UnreadableObject | None,
        lease: ReadLease,
        *,
        may_go_on: bool = False,
    ) -> None:
        self.may_go_on = may_go_on
        self.parts, self.reached, self.unreadable = parts, reached, unreadable
        self.size_bytes = sum(each.size_bytes for each in counted)
        self._counted, self._lease = counted, lease
        self._users = 1
        lease.keep(self.size_bytes)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def use(self) -> None:
        """Count one more user."""
        if not self._users:
            self._lease.keep(self.size_bytes)
        self._users += 1

    def drop(self) -> None:
        """Count one user less."""
        self._users -= 1
        if not self._users:
            self._lease.keep(0)

    def count(self, runtime: TopicRuntime, readers: int = 1) -> None:
        """Count that so many readers have got it."""
        for segment, messages, size_bytes in self._counted:
            runtime.reads.count_read(segment, readers * messages, readers * size_bytes)


def rendered_runs(
    view: TopicView, runs: Sequence[Run], positions: Positions, form: StreamForm
) -> Steps[list[list[Part]]]:
    """The parts of each run, each message with the marker behind it."""
    topic, reached, large = view.topic, dict(positions), Aside()
    renderer = MessageRenderer(topic, view.runtime.schema, large)
    pages: list[list[Part]] = []
    for run in runs:
        written = Written()
        for message in renderer.in_steps(run):
            if message is None:
                yield
                continue
            reached[run.segment] = message["offset"] + 1
            written.add(large.fill(form.message(message, to_marker(topic, reached))))
        pages.append(written.all_parts())
    return pages
