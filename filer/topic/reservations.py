"""Bulk loads as pure functions of topic.json: reserving segments, abandoning a load, sweeping uncommitted loads.

Segment ids give readers of bare files the order of messages, and a load's ids are in its files long before the load is
committed. So ids are reserved `IDS_APART` above all others: segments that open meanwhile take the ids in between, and
segments that open after the load get higher ones. If a load is committed after another one with higher ids, it would
come before that one in this order. Such a load is *overtaken*: it is refused, and may be reserved again.

A reserved id is never used for anything else, since files may be written under it as long as a client has a presigned
URL. The record of an abandoned load stays while its files do, and while its ids are above `next_segment`.
"""

from collections.abc import Sequence

from filer.topic.topic_state import Load, Removal, Segment, TopicState

LIFETIME_US = 86_400 * 1_000_000
IDS_APART = 16_384
MOST_RESERVED = 64
"""The most bulk loads of a topic that are reserved at a time."""
MOST_SEGMENTS = 1024
"""The most segments of one bulk load."""
MOST_RESERVED_SEGMENTS = 4096
"""The most segments of all loads of a topic that are reserved or abandoned, while their record stays."""


def find_load(state: TopicState, load_id: str) -> Load | None:
    """The load of that id, reserved or adopted; None if there is none or it was abandoned."""
    return next((load for load in state.loads if load.id == load_id and not load.abandoned), None)


def is_overtaken(state: TopicState, load: Load) -> bool:
    """Whether segments with ids above a reserved load's have been opened: it can no longer come after them.

    Segments that open when the load itself is adopted do not count.
    """
    return load.reserved and state.next_segment > load.first_segment and not is_committing(state, load)


def is_expired(state: TopicState, load: Load, *, now_us: int) -> bool:
    """Whether a reserved load was not committed in time; a load that is being adopted was."""
    return load.reserved and load.expires_us <= now_us and not is_committing(state, load)


def has_room(state: TopicState, segments: int) -> bool:
    """Whether one more load of so many segments may be reserved: the size of topic.json is bounded."""
    waiting = [load for load in state.loads if load.version is None]
    taken = sum(len(load.starts) for load in waiting)
    return len(waiting) < MOST_RESERVED and taken + segments <= MOST_RESERVED_SEGMENTS


def reserving(state: TopicState, load_id: str, starts: Sequence[int], *, now_us: int) -> TopicState | None:
    """Reserve a segment for each range that begins at one of these slots; None for no change.

    If the load is known, nothing changes, unless it is reserved and expired or overtaken: then it is abandoned and
    reserved again. Nothing changes either if the topic was deleted, or if there is no room.
    """
    known = find_load(state, load_id)
    if known is not None and (is_overtaken(state, known) or is_expired(state, known, now_us=now_us)):
        state, known = _abandoned(state, known, now_us), None
    if state.deleted or known is not None or not has_room(state, len(starts)):
        return None
    above = max([state.next_segment, *(load.segments.stop for load in state.loads)])
    load = Load(
        id=load_id,
        first_segment=above + IDS_APART,
        starts=tuple(starts),
        reserved_us=now_us,
        expires_us=now_us + LIFETIME_US,
    )
    return state.model_copy(update={"loads": (*state.loads, load)})


def abandoning(state: TopicState, load_id: str, *, now_us: int) -> TopicState | None:
    """Abandon a reserved load; None if there is none, or it is being adopted.

    After this compare-and-swap it can never be adopted, so its files may be deleted a grace period later.
    """
    load = find_load(state, load_id)
    if load is None or not load.reserved or is_committing(state, load):
        return None
    return _abandoned(state, load, now_us)


def sweeping(state: TopicState, *, now_us: int) -> TopicState | None:
    """Abandon loads that were not committed in time, and forget loads that left nothing behind; None for no change."""
    swept = state
    for load in state.loads:
        if is_expired(state, load, now_us=now_us):
            swept = _abandoned(swept, load, now_us)
    swept = _without_traceless(swept)
    return None if swept == state else swept


def is_committing(state: TopicState, load: Load) -> bool:
    """Whether the transition that adopts the load is under way."""
    return state.transition is not None and any(s.id in load.segments for s in state.transition.adopt)


def load_segments(state: TopicState) -> set[int]:
    """The segment ids of all loads, adopted, reserved or abandoned: no file in their folders refers to an upload.

    The files of loads that are not adopted were never checked, nor files written later with a presigned URL.
    """
    return {segment for load in state.loads for segment in load.segments}


def adopted(state: TopicState, segments: Sequence[Segment], *, version: int) -> TopicState:
    """The state in which the load of these segments is adopted, by the topic.json of that version."""
    done = {"version": version, "ends": tuple(segment.end_offset or 0 for segment in segments)}
    loads = (load.model_copy(update=done) if load.first_segment == segments[0].id else load for load in state.loads)
    return state.model_copy(update={"loads": tuple(loads)})


def without_loads(state: TopicState, *, now_us: int) -> TopicState:
    """The state of a deleted topic: reserved loads are abandoned, and no later topic of its name gets their ids."""
    above = max([state.next_segment, *(load.segments.stop for load in state.loads)])
    left = state.model_copy(update={"next_segment": above})
    for load in state.loads:
        if load.reserved:
            left = _abandoned(left, load, now_us)
    return left.model_copy(update={"loads": tuple(load for load in left.loads if load.abandoned)})


def _abandoned(state: TopicState, load: Load, now_us: int) -> TopicState:
    loads = tuple(each.model_copy(update={"abandoned": True}) if each is load else each for each in state.loads)
    removals = (*state.removals, *(Removal(segment=segment, since_us=now_us) for segment in load.segments))
    return state.model_copy(update={"loads": loads, "removals": removals})


def _without_traceless(state: TopicState) -> TopicState:
    """The state without adopted loads whose segments were removed, and without abandoned loads whose files are deleted.

    An abandoned load with ids above `next_segment` is forgotten only when no reserved load has lower ids, and
    `next_segment` then moves past its ids: else segments that open would overtake the reserved load.
    """
    present = {segment.id for segment in state.segments}
    removed = {removal.segment for removal in state.removals}
    kept: list[Load] = []
    passed, waits = state.next_segment, False
    for load in state.loads:
        if load.version is not None:
            if not present.isdisjoint(load.segments):
                kept.append(load)
        elif load.reserved or not removed.isdisjoint(load.segments) or (waits and load.segments.stop > passed):
            kept.append(load)
            waits = waits or load.reserved
        else:
            passed = max(passed, load.segments.stop)
    return state.model_copy(update={"loads": tuple(kept), "next_segment": passed})
