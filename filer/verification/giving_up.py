"""Giving up what is lost, by one compare-and-swap of topic.json (docs/design.md §4, "What is given up").

Nothing on the store is moved or deleted: a file that is put back later stays where it is, and does not count. The
losses are looked at once more right before, and the compare-and-swap comes less than half a grace period after that
look. Files that were read then, or that have replaced what was read, are not deleted before it. So nothing is given up
that was only rolled up meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from filer import keys
from filer.clock import Clock
from filer.errors import BraidError, ObjectNotFound, OutcomeUnknown
from filer.segment.segment_log import SegmentRef
from filer.stores.store import Store
from filer.stores.store_time import Moment, age_seconds, moment
from filer.topic.catalogue import Catalogue
from filer.topic.cluster_record import read_grace_seconds
from filer.topic.topic_state import GivenUp, Segment, TopicState
from filer.verification.losses import Loss, losses_of


class NotLost(BraidError):
    """A loss can be read by now, looks otherwise than before, or may not be given up yet."""


@dataclass(frozen=True, slots=True)
class _Look:
    """When the losses were looked at last, and how old that may be."""

    began: Moment
    longest_seconds: float


async def give_up(store: Store, clock: Clock, catalogue: Catalogue, topic: str, losses: Sequence[Loss]) -> TopicState:
    """Record these losses of a topic as given up; returns the topic's state.

    Safe to stop anywhere, and to repeat: the record changes in one step or not at all, and a loss that is given up
    already is left as it is. Raises `NotLost` if a loss cannot be given up now, and then nothing has changed. Raises as
    `Catalogue.change`, and `OutcomeUnknown` if an older record is put back meanwhile.
    """
    longest_seconds = await read_grace_seconds(store) / 2
    await store.tell_time()
    look = _Look(moment(store.time, clock), longest_seconds)
    record = await catalogue.read(topic)
    if record is None:
        raise NotLost(f"topic {topic!r} is not there any more")
    for loss in losses:
        if loss.next_offset is None:
            await _check_age(store, loss, longest_seconds)
    for segment in record.state.segments:
        of_segment = [loss for loss in losses if loss.segment == segment.id]
        if of_segment:
            await _check_still_lost(store, record.state, segment, of_segment)
    await store.tell_time()
    decide = partial(_with_given_up, store=store, clock=clock, look=look, losses=losses, since_us=catalogue.stamp_us())
    state = await catalogue.change(topic, decide)
    if state is None:
        raise NotLost(f"topic {topic!r} is not there any more")
    return await _confirmed(catalogue, state, losses)


async def _confirmed(catalogue: Catalogue, given_up: TopicState, losses: Sequence[Loss]) -> TopicState:
    """The newest state, once no older record can make brokers wait again for what readers have passed by.

    First a mark of the version, then a look, as when a bulk load is committed (`model/older_records.py`). If an older
    record is put back before the look, the look finds it; if it is put back after it, the mark makes brokers refuse it.
    Stopped before, no caller has learned that anything is given up; repeated, it finds it given up, and marks that
    version.
    """
    await catalogue.mark(given_up.topic, given_up.version)
    record = await catalogue.read(given_up.topic)
    if record is None or any(_added(segment, losses, 0) != segment.given_up for segment in record.state.segments):
        raise OutcomeUnknown(
            f"{keys.topic(given_up.topic)} does not say any more what is given up: somebody has put back an older one. "
            "Run this again"
        )
    return record.state


async def _check_age(store: Store, loss: Loss, least_seconds: float) -> None:
    """Raise `NotLost` if the owner of a damaged last file may still take that file for a proof of its ownership.

    Nothing shows how far the file reached, so a seal behind it cannot take the name of the owner's next file. Only its
    proof keeps an owner that was paused from acknowledging that next file: by then it has to look for the seal.
    """
    try:
        info = await store.head(loss.key)
    except ObjectNotFound as error:
        raise NotLost(f"{loss.key} is gone by now: run this again") from error
    left_seconds = least_seconds - (store.time.latest_us - info.modified_us) / 1e6
    if left_seconds > 0:
        raise NotLost(
            f"{loss.key} has changed less than half of the grace period ago, so its owner may yet store messages "
            f"behind it: run this again in {left_seconds:.0f} s"
        )


async def _check_still_lost(store: Store, state: TopicState, segment: Segment, losses: Sequence[Loss]) -> None:
    found = await losses_of(store, SegmentRef.of(state, segment), segment, among=losses)
    for loss in losses:
        if loss not in found and not _is_recorded(segment, loss):
            raise NotLost(f"{loss.key} can be read by now, or is lost in another way than before: run this again")


def _with_given_up(
    state: TopicState, *, store: Store, clock: Clock, look: _Look, losses: Sequence[Loss], since_us: int
) -> TopicState | None:
    """The state in which the losses are given up; None if they are already. Raises `NotLost` if the look is too old."""
    segments = tuple(
        segment.model_copy(update={"given_up": _added(segment, losses, since_us)}) for segment in state.segments
    )
    if segments == state.segments:
        return None
    if age_seconds(store.time, clock, look.began) > look.longest_seconds:
        raise NotLost("to look at what is lost took more than half of the grace period: run this again")
    return state.model_copy(update={"segments": segments})


def _added(segment: Segment, losses: Sequence[Loss], since_us: int) -> tuple[GivenUp, ...]:
    """What the segment has given up, with those losses that it has not yet given up and that have not expired since."""
    new = [
        GivenUp(offset=loss.offset, next_offset=loss.next_offset, key=loss.key, what=loss.what, since_us=since_us)
        for loss in losses
        if loss.segment == segment.id
        and not _is_recorded(segment, loss)
        and (loss.next_offset is None or loss.offset == loss.next_offset or loss.next_offset > segment.start_offset)
    ]
    return tuple(sorted((*segment.given_up, *new), key=lambda each: each.offset)) if new else segment.given_up


def _is_recorded(segment: Segment, loss: Loss) -> bool:
    return any((each.offset, each.next_offset) == (loss.offset, loss.next_offset) for each in segment.given_up)
