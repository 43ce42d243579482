"""What a segment knows of producers from its predecessors: handed over within a process, else read from their seals.

Whoever opens a successor comes to know it, wherever it or others stopped before: a predecessor's seal stays as long as
topic.json names the predecessor, and until it is read no request with a producer is taken.

Where the predecessors are those of a load, what was known goes on through them. Their files hold no requests and their
seals no windows: they were written before anybody knew what the segments that the load came after would end with. But
those were sealed by owners, and their seals stand as long as the load's: retention lets no segment leave topic.json
before its predecessors. So in place of each segment of a load its own predecessors are asked, each for its own slots,
until only others are left; a load opens successors that have windows of their own, so that is one step as a rule. Each
slot has one such ancestor only: all that was open tiled the slots, and so did what the load brought.
"""

import asyncio
from collections.abc import Mapping, Sequence

from filer.catalogue import Catalogue
from filer.clock import Clock
from filer.errors import ObjectNotFound, OutcomeUnknown
from filer.keys import FileName
from filer.producer_windows import ProducerWindows
from filer.segment_file import Footer
from filer.segment_index import SegmentIndex
from filer.segment_log import (
    RETRY_FIRST_SECONDS,
    RETRY_LONGEST_SECONDS,
    Inherit,
    SegmentRef,
    fetch_footer,
    recover_index,
)
from filer.store import Store
from filer.topic_state import Segment, TopicState, published_before


def handed_over(state: TopicState, segment: Segment, indexes: Mapping[int, SegmentIndex]) -> ProducerWindows | None:
    """The windows for a segment from its predecessors' indexes; None where not all of those have them whole."""
    parents = _parents(state, segment)
    at_hand = [index for parent in parents if (index := indexes.get(parent.id)) and index.sealed and index.inherited]
    if len(at_hand) < len(parents):
        return None
    return _for_heir(segment, parents, [index.windows for index in at_hand])


async def read_inherited(
    store: Store, catalogue: Catalogue, topic: str, segment: Segment, known: TopicState | None = None
) -> ProducerWindows:
    """The windows for a segment from the seals of its predecessors, as far as topic.json still names them.

    Those that the state `known` names are looked for first: a seal never changes, so one that is found is right however
    old that state is. Raises `OutcomeUnknown` where that cannot be told now, `CorruptFile`.
    """
    if known is not None:
        parents = _parents(known, segment)
        seals = await asyncio.gather(*(_find_seal(store, topic, parent) for parent in parents))
        if all(seals):
            return _of_seals(segment, parents, [seal for seal in seals if seal is not None])
    # Read afresh: the files of a segment stay for a grace period after topic.json has let it go, so those of one
    # that is named now are there. What has left it was emptied by retention, and nobody repeats a request so old.
    record = await catalogue.read(topic)
    if record is None:
        return ProducerWindows(*segment.range)
    parents = _parents(record.state, segment)
    return _of_seals(segment, parents, await asyncio.gather(*(_read_seal(store, topic, each) for each in parents)))


def _of_seals(segment: Segment, parents: Sequence[Segment], seals: Sequence[Footer]) -> ProducerWindows:
    windows = [ProducerWindows.from_bytes(seal.windows) if seal.windows else ProducerWindows() for seal in seals]
    return _for_heir(segment, parents, windows)


def _parents(state: TopicState, segment: Segment) -> list[Segment]:
    """Those whose windows it has: its predecessors, or in place of a load's segments those that came before these."""
    return published_before(segment, {each.id: each for each in state.segments})


def _for_heir(segment: Segment, parents: Sequence[Segment], windows: Sequence[ProducerWindows]) -> ProducerWindows:
    """Each parent speaks for its own slots only."""
    known = [each.restricted(*parent.range) for parent, each in zip(parents, windows, strict=True)]
    return ProducerWindows.combined(known, *segment.range)


async def _find_seal(store: Store, topic: str, segment: Segment) -> Footer | None:
    """The footer of the seal of a sealed segment; None where it takes a look at all its files to find that.

    Who sealed it has said which file that is, but for brokers of an older version.
    """
    if segment.end_offset is None or segment.seal_offset is None:
        return None
    try:
        footer, _ = await fetch_footer(store, SegmentRef(topic, segment.id).key(FileName(segment.seal_offset)))
    except ObjectNotFound:
        return None
    return footer if footer.sealed and footer.end == segment.end_offset else None


async def _read_seal(store: Store, topic: str, segment: Segment) -> Footer:
    """As `_find_seal`, and where that does not find it by the segment's index."""
    if (footer := await _find_seal(store, topic, segment)) is not None:
        return footer
    ref = SegmentRef(topic, segment.id)
    index = await recover_index(store, ref, start_offset=segment.start_offset)
    if not index.sealed:
        raise OutcomeUnknown(f"segment {segment.id} of topic {topic!r} is sealed, and its seal was not found")
    return (await fetch_footer(store, ref.key(index.files[-1].name)))[0]


class Inheritance:
    """Brings an open segment's index its predecessors' windows, in the background, for as long as it takes.

    `over` is set once it is complete or has been stopped.
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
        """Whether the index has all there is to inherit."""
        return self._index.inherited

    async def wait(self) -> None:
        """Wait until it is complete, or has been stopped.

        Raises why the last try failed, unless the store just gave no answer; it is tried again.
        """
        if not self.complete:
            await asyncio.shield(self._outcome)

    def stop(self) -> None:
        """Try no more; nobody goes on waiting."""
        self.over.set()
        if self._task is not None:
            self._task.cancel()
        if not self._outcome.done():
            self._outcome.set_result(None)

    async def _run(self) -> None:
        pause = RETRY_FIRST_SECONDS
        while not self.complete:
            try:
                self._index.inherit(await self._inherit())
            except OutcomeUnknown:
                pass
            except Exception as error:
                # Whatever it was: a task that just ended would leave those who wait waiting for ever.
                self._tell(error)
            if not self.complete:
                await self._clock.sleep(pause)
                pause = min(pause * 2, RETRY_LONGEST_SECONDS)
        self.over.set()
        self._outcome.set_result(None)

    def _tell(self, error: Exception) -> None:
        """Fail those who wait now; others may yet see it succeed."""
        failed, self._outcome = self._outcome, asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        failed.exception()
