"""The producer windows that a segment inherits from its predecessors: in memory if possible, else from their seals.

The owner of a successor always obtains them, even if it or another broker stopped at any point before. A predecessor's
seal stays as long as topic.json names the predecessor, and no request with a producer is accepted until the seal is
read.

Predecessors that came from a bulk load have no windows of their own. Their files hold no requests and their seals no
windows: the load wrote them before it was known how the segments before the load would end. So the predecessors of each
loaded segment are asked instead, each for its own slots, until none of a bulk load is left. As a rule that is one step,
since the successors of a bulk load have windows of their own. Those earlier segments were sealed by owners, and their
seals stay as long as those of the load: retention lets no segment leave topic.json before its predecessors. Each slot
has only one such ancestor, because the segments that were open tiled the slots, and so did those of the load.
"""

import asyncio
from collections.abc import Mapping, Sequence

from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import CorruptFile, ObjectNotFound, OutcomeUnknown
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
    however old that state is. If a seal is gone or damaged, what the predecessor's other files know counts. Raises
    `OutcomeUnknown` if the store does not answer now.
    """
    if known is not None:
        parents = _parents(known, segment)
        seals = await asyncio.gather(*(_find_seal(store, topic, parent) for parent in parents))
        found = [windows for windows in seals if windows is not None]
        if len(found) == len(parents):
            return _for_successor(segment, parents, found)
    # A fresh read: the files of a segment stay for a grace period after it left topic.json, so the files of a segment
    # that is named now are there. Retention has emptied the segments that left it, and no producer repeats a request
    # that old.
    record = await catalogue.read(topic)
    if record is None:
        return ProducerWindows(*segment.range)
    parents = _parents(record.state, segment)
    left = await asyncio.gather(*(_left_by(store, catalogue, record.state, each) for each in parents))
    return _for_successor(segment, parents, left)


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


async def _find_seal(store: Store, topic: str, segment: Segment) -> ProducerWindows | None:
    """The windows in a sealed segment's seal, found by its `seal_offset`.

    None if it is gone or damaged, or if its offset is not recorded: brokers of an older version did not do that.
    """
    if segment.end_offset is None or segment.seal_offset is None:
        return None
    return await _read_seal(store, topic, segment, FileName(segment.seal_offset))


async def _read_seal(store: Store, topic: str, segment: Segment, name: FileName) -> ProducerWindows | None:
    """The windows in the file of that name; None if it is no readable seal of the segment."""
    try:
        footer, _ = await fetch_footer(store, SegmentRef(topic, segment.id).key(name))
        if not footer.sealed or (segment.end_offset is not None and footer.end != segment.end_offset):
            return None
        return ProducerWindows.from_bytes(footer.windows) if footer.windows else ProducerWindows()
    except (ObjectNotFound, CorruptFile):
        return None


async def _left_by(store: Store, catalogue: Catalogue, state: TopicState, segment: Segment) -> ProducerWindows:
    """The windows that a sealed segment leaves: those in its seal, found by its offset or else by the index.

    If the seal is gone or damaged, the windows are put together from the segment's other files, its snapshot, and what
    it inherited itself. Requests in the lost file are unknown then. So every sequence is refused that a known producer
    seems to have left out: none of those is stored twice.
    """
    if (windows := await _find_seal(store, state.topic, segment)) is not None:
        return windows
    ref = SegmentRef.of(state, segment)
    index = await recover_index(store, ref, start_offset=segment.start_offset)
    if index.sealed and index.files:
        windows = await _read_seal(store, state.topic, segment, index.files[-1].name)
        if windows is not None:
            return windows
    windows = index.windows
    if not index.inherited:
        windows = ProducerWindows.combined(
            [await read_inherited(store, catalogue, state.topic, segment, state), windows], *segment.range
        )
    windows.refuse_gaps()
    return windows


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
        """Stop retrying, and release all waiting callers."""
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
                # Catch every error: if the task simply ended, its callers would wait for ever.
                self._fail_waiting(error)
            if not self.complete:
                await backoff.pause()
        self.over.set()
        self._outcome.set_result(None)

    def _fail_waiting(self, error: Exception) -> None:
        """Fail the callers that wait now; a later try may succeed for others."""
        failed, self._outcome = self._outcome, asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        failed.exception()
