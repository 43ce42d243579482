"""The producer windows that a segment inherits from its predecessors: in memory if possible, else from their seals.

The owner of a successor always obtains them, even if it or another broker stopped at any point before. A predecessor's
seal stays as long as topic.json names the predecessor, and no request with a producer is accepted until the seal is
read.

Predecessors that came from a bulk load have no windows of their own. Their files hold no requests and their seals no
windows: they were written before anybody knew how the segments before the load would end. So the predecessors of each
loaded segment are asked instead, each for its own slots, until none of a bulk load is left. As a rule that is one step,
since the successors of a bulk load have windows of their own. Those earlier segments were sealed by owners, and their
seals stay as long as those of the load: retention lets no segment leave topic.json before its predecessors. Each slot
has only one such ancestor, because the segments that were open tiled the slots, and so did those of the load.
"""

import asyncio
from collections.abc import Mapping, Sequence

from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import ObjectNotFound, OutcomeUnknown
from filer.format.segment_file import Footer
from filer.keys import FileName
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import (
    Inherit,
    SegmentRef,
    fetch_footer,
    recover_index,
)
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import Segment, TopicState, published_before


def handed_over(state: TopicState, segment: Segment, indexes: Mapping[int, SegmentIndex]) -> ProducerWindows | None:
    """The windows for a segment from its predecessors' indexes; None unless all of those have complete windows."""
    parents = _parents(state, segment)
    complete = [index for parent in parents if (index := indexes.get(parent.id)) and index.sealed and index.inherited]
    if len(complete) < len(parents):
        return None
    return _for_successor(segment, parents, [index.windows for index in complete])


async def read_inherited(
    store: Store, catalogue: Catalogue, topic: str, segment: Segment, known: TopicState | None = None
) -> ProducerWindows:
    """The windows for a segment from the seals of its predecessors, as far as topic.json still names them.

    The predecessors in the state `known` are tried first: a seal never changes, so a seal that is found is right,
    however old that state is. Raises `OutcomeUnknown` if the store does not answer now, and `CorruptFile`.
    """
    if known is not None:
        parents = _parents(known, segment)
        seals = await asyncio.gather(*(_find_seal(store, topic, parent) for parent in parents))
        if all(seals):
            return _of_seals(segment, parents, [seal for seal in seals if seal is not None])
    # A fresh read: the files of a segment stay for a grace period after it left topic.json, so the files of a segment
    # that is named now are there. Retention has emptied the segments that left it, and no producer repeats a request
    # that old.
    record = await catalogue.read(topic)
    if record is None:
        return ProducerWindows(*segment.range)
    parents = _parents(record.state, segment)
    return _of_seals(segment, parents, await asyncio.gather(*(_read_seal(store, topic, each) for each in parents)))


def _of_seals(segment: Segment, parents: Sequence[Segment], seals: Sequence[Footer]) -> ProducerWindows:
    windows = [ProducerWindows.from_bytes(seal.windows) if seal.windows else ProducerWindows() for seal in seals]
    return _for_successor(segment, parents, windows)


def _parents(state: TopicState, segment: Segment) -> list[Segment]:
    """The segments from which it inherits: its predecessors.

    A loaded predecessor is replaced by those before the load.
    """
    if not segment.predecessors:
        return []
    return published_before(segment, {each.id: each for each in state.segments})


def _for_successor(segment: Segment, parents: Sequence[Segment], windows: Sequence[ProducerWindows]) -> ProducerWindows:
    """Cut the windows of each parent to the parent's own slots."""
    known = [each.restricted(*parent.range) for parent, each in zip(parents, windows, strict=True)]
    return ProducerWindows.combined(known, *segment.range)


async def _find_seal(store: Store, topic: str, segment: Segment) -> Footer | None:
    """The footer of a sealed segment's seal, found by its `seal_offset`; None if the files must be searched for it.

    Brokers of an older version did not record that offset.
    """
    if segment.end_offset is None or segment.seal_offset is None:
        return None
    try:
        footer, _ = await fetch_footer(store, SegmentRef(topic, segment.id).key(FileName(segment.seal_offset)))
    except ObjectNotFound:
        return None
    return footer if footer.sealed and footer.end == segment.end_offset else None


async def _read_seal(store: Store, topic: str, segment: Segment) -> Footer:
    """As `_find_seal`. If that does not find the seal, it is found by the segment's index."""
    if (footer := await _find_seal(store, topic, segment)) is not None:
        return footer
    ref = SegmentRef(topic, segment.id)
    index = await recover_index(store, ref, start_offset=segment.start_offset)
    if not index.sealed:
        raise OutcomeUnknown(f"segment {segment.id} of topic {topic!r} is sealed, but its seal was not found")
    return (await fetch_footer(store, ref.key(index.files[-1].name)))[0]


class Inheritance:
    """Adds the predecessors' windows to an open segment's index, in the background, and retries until that succeeds.

    `over` is set once it is complete or was stopped.
    """

    def __init__(self, clock: Clock, index: SegmentIndex, inherit: Inherit) -> None:
        self._clock, self._index, self._inherit = clock, index, inherit
        self.over = asyncio.Event()
        self._outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if index.inherited:
            self.over.set()
        self._task = None if index.inherited else asyncio.create_task(self._run(), name="inherit producer windows")

    @property
    def complete(self) -> bool:
        """Whether the index has everything that it inherits."""
        return self._index.inherited

    async def wait(self) -> None:
        """Wait until it is complete or was stopped.

        Raises the error of the last try, except `OutcomeUnknown`. Either way there is another try.
        """
        if not self.complete:
            await asyncio.shield(self._outcome)

    def stop(self) -> None:
        """Stop retrying, and release all who wait."""
        self.over.set()
        if self._task is not None:
            self._task.cancel()
        if not self._outcome.done():
            self._outcome.set_result(None)

    async def _run(self) -> None:
        backoff = Backoff(self._clock)
        while not self.complete:
            try:
                self._index.inherit(await self._inherit())
            except OutcomeUnknown:
                pass
            except Exception as error:
                # Catch every error: if the task simply ended, those who wait would wait for ever.
                self._fail_waiting(error)
            if not self.complete:
                await backoff.pause()
        self.over.set()
        self._outcome.set_result(None)

    def _fail_waiting(self, error: Exception) -> None:
        """Fail those who wait now; a later try may succeed for others."""
        failed, self._outcome = self._outcome, asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        failed.exception()
