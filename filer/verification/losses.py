"""The losses of a topic: the messages that cannot be read any more, and the objects that had them."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from filer.errors import CorruptFile, DataMissing, ObjectNotFound
from filer.keys import FileName
from filer.segment.live_files import FileFacts, walk_chain
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, fetch_file, find_again, list_names, reach, recover_index
from filer.stores.store import Store
from filer.topic.topic_state import Segment, TopicState, has_given_up_seal
from filer.verification.stored_files import verify_file


@dataclass(frozen=True, slots=True)
class Loss:
    """The messages `[offset, next_offset)` of a segment, which cannot be read without the object `key`.

    `next_offset` is None for a damaged last file of an open segment: nothing shows how far it reached. It equals
    `offset` for a seal without messages. `name` is that of the file.
    """

    segment: int
    offset: int
    next_offset: int | None
    key: str
    name: FileName
    what: Literal["missing", "damaged"]

    @property
    def messages(self) -> int | None:
        """How many messages are lost; None if that is unknown."""
        return None if self.next_offset is None else self.next_offset - self.offset


async def find_losses(
    store: Store, state: TopicState, *, on_checked: Callable[[str], None] = lambda key: None
) -> AsyncIterator[Loss]:
    """Every loss of the topic that is not given up yet, in the order of segments and offsets.

    Reads every byte of the files that count; `on_checked` is called with the key of each. Raises as `losses_of`.
    """
    for segment in state.segments:
        for loss in await losses_of(store, SegmentRef.of(state, segment), segment, on_checked=on_checked):
            yield loss


async def losses_of(
    store: Store,
    ref: SegmentRef,
    segment: Segment,
    *,
    among: Sequence[Loss] | None = None,
    on_checked: Callable[[str], None] = lambda key: None,
) -> list[Loss]:
    """The losses of one segment that are not given up yet, in the order of offsets.

    With `among`, only checks the bytes of files that have had messages of those losses. Raises `DataMissing` if a
    damaged roll-up has replaced files that are still there: nothing is lost then. Raises `StoreError`.
    """
    index = await _index_of(store, ref, segment)
    bad: dict[FileName, Loss] = {}
    for facts in index.files[:]:
        if among is not None and not any(_overlaps(facts, loss) for loss in among):
            continue
        loss = await _find_damage(store, ref, facts)
        on_checked(ref.key(facts.name))
        if loss is not None and not await _is_replaced(store, ref, segment, facts):
            bad[facts.name] = loss
            index.lose(facts, damaged=loss.what == "damaged")
    for hole in index.lost:
        # Files that a roll-up has replaced may still be there: then brokers read those.
        await find_again(store, ref, index, hole)
    # A file with a sound footer is found again, but perhaps not its messages.
    kept = [bad[facts.name] for facts in index.files if facts.name in bad]
    losses = sorted([*_of_index(ref, segment, index), *kept], key=lambda loss: loss.offset)
    for loss in losses:
        await _check_lost(store, ref, loss)
    return losses


def _overlaps(facts: FileFacts, loss: Loss) -> bool:
    end = loss.offset if loss.next_offset is None else loss.next_offset
    return facts.start < max(end, loss.offset + 1) and loss.offset < max(facts.end, facts.start + 1)


async def _index_of(store: Store, ref: SegmentRef, segment: Segment) -> SegmentIndex:
    """The segment's index as it stands on the store, up to the end that topic.json names."""
    index = await recover_index(store, ref, start_offset=segment.start_offset)
    if segment.end_offset is not None and not index.sealed and index.end < segment.end_offset:
        reach(ref, index, segment.end_offset)
    return index


def _of_index(ref: SegmentRef, segment: Segment, index: SegmentIndex) -> Iterator[Loss]:
    """The losses that the index shows: holes instead of files."""
    for hole in index.lost:
        what: Literal["missing", "damaged"] = "damaged" if hole.damaged else "missing"
        yield Loss(ref.segment, hole.start, hole.end, ref.key(hole.name), hole.name, what)
    is_over = segment.is_over_at(index.end)
    if index.blocked is not None and not is_over:
        yield Loss(ref.segment, index.end, None, ref.key(index.blocked), index.blocked, "damaged")
    seal_is_due = is_over and not index.sealed and segment.seal_offset == segment.end_offset == index.end
    if seal_is_due and not has_given_up_seal(segment):
        name = FileName(index.end)
        what = "missing" if index.blocked is None else "damaged"
        yield Loss(ref.segment, index.end, index.end, ref.key(name), name, what)


async def _find_damage(store: Store, ref: SegmentRef, facts: FileFacts) -> Loss | None:
    """The loss of a file that counts, if its bytes do not match its footer, or if it is gone by now."""
    verdict, _ = await verify_file(store, ref, facts.name)
    if verdict.is_sound:
        return None
    what: Literal["missing", "damaged"] = "missing" if verdict.condition == "missing" else "damaged"
    return Loss(ref.segment, facts.start, facts.end, ref.key(facts.name), facts.name, what)


async def _is_replaced(store: Store, ref: SegmentRef, segment: Segment, facts: FileFacts) -> bool:
    """Whether another file counts in its place by now: it was rolled up, and deleted, since it was listed."""
    index = await _index_of(store, ref, segment)
    return any(each.start <= facts.start < each.end and each.name != facts.name for each in index.files)


async def _check_lost(store: Store, ref: SegmentRef, loss: Loss) -> None:
    """Raise `DataMissing` if other files, which no reader uses while this one is there, have messages of the loss."""
    if loss.what != "damaged" or not loss.name.rolled or loss.next_offset is None:
        return
    end = loss.next_offset
    found: list[FileFacts] = []
    for name in await list_names(store, ref, from_offset=loss.name.base):
        if name != loss.name and name.base < end:
            try:
                found.append((await fetch_file(store, ref, name)).facts)
            except (CorruptFile, ObjectNotFound):
                continue
    chain = walk_chain([facts for facts in found if facts.end <= end], loss.offset, over_gaps=True)
    if chain.files:
        raise DataMissing(
            f"{loss.key} is damaged, but {ref.key(chain.files[0].name)}, which it has replaced, is still there: "
            "nothing is lost that has to be given up. Move the damaged object away from the store, and brokers read "
            "what it has replaced",
            key=loss.key,
        )
