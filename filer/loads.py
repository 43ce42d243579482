"""Loads as pure functions of topic.json: reserving segments for one, giving it up, sweeping those never committed.

Ids of segments are the order of messages for whoever reads bare files, and a load's are in its files long before it is
committed. So they are reserved `IDS_APART` above all others: what splits and rolls meanwhile takes the ids in between,
and what comes after the load is given higher ones. A load that is committed after another which had higher ids would
come before it in that order: it has been *overtaken*, is refused, and may be reserved anew.

An id that was reserved is never used for anything else: files may come under its name for as long as somebody holds a
signed address. Of a load that was given up the record stays while its files do, and while its ids lie ahead.
"""

from collections.abc import Sequence

from filer.topic_state import Load, Removal, Segment, TopicState

LIFETIME_US = 86_400 * 1_000_000
IDS_APART = 16_384
MOST_RESERVED = 64
"""Loads of a topic that are reserved at a time."""
MOST_SEGMENTS = 1024
"""Segments of one load."""
MOST_RESERVED_SEGMENTS = 4096
"""Of all loads of a topic that are reserved or have been given up, while their record stays."""


def find_load(state: TopicState, load_id: str) -> Load | None:
    """The load of that id, reserved or adopted; None where there is none, or it was given up."""
    return next((load for load in state.loads if load.id == load_id and not load.abandoned), None)


def is_overtaken(state: TopicState, load: Load) -> bool:
    """Whether segments of higher ids than a reserved load's have been opened: it cannot come after them any more.

    Those that open when it is adopted itself are no such segments.
    """
    return load.reserved and state.next_segment > load.first_segment and not is_committing(state, load)


def is_expired(state: TopicState, load: Load, *, now_us: int) -> bool:
    """Whether a reserved load was not committed in time; what is being adopted was."""
    return load.reserved and load.expires_us <= now_us and not is_committing(state, load)


def has_room(state: TopicState, segments: int) -> bool:
    """Whether one more load of so many segments may be reserved: topic.json stays of bounded size."""
    waiting = [load for load in state.loads if load.version is None]
    taken = sum(len(load.starts) for load in waiting)
    return len(waiting) < MOST_RESERVED and taken + segments <= MOST_RESERVED_SEGMENTS


def reserving(state: TopicState, load_id: str, starts: Sequence[int], *, now_us: int) -> TopicState | None:
    """Reserve a segment for each range that begins at one of these slots.

    None where the load is known, unless it is reserved and too old or overtaken: then that one is given up, and another
    takes its place. None too where there is no such topic any more, or no room.
    """
    known = find_load(state, load_id)
    if known is not None and (is_overtaken(state, known) or is_expired(state, known, now_us=now_us)):
        state, known = _given_up(state, known, now_us), None
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
    """Give a reserved load up; None where there is none, or it is being adopted.

    From this compare-and-swap on it can never be adopted, so its files may go a grace period later.
    """
    load = find_load(state, load_id)
    if load is None or not load.reserved or is_committing(state, load):
        return None
    return _given_up(state, load, now_us)


def sweeping(state: TopicState, *, now_us: int) -> TopicState | None:
    """Give up loads that were not committed in time, and forget those of which nothing is left; None for no change."""
    swept = state
    for load in state.loads:
        if is_expired(state, load, now_us=now_us):
            swept = _given_up(swept, load, now_us)
    swept = _without_the_gone(swept)
    return None if swept == state else swept


def is_committing(state: TopicState, load: Load) -> bool:
    """Whether the transition that adopts the load is under way."""
    return state.transition is not None and any(s.id in load.segments for s in state.transition.adopt)


def load_segments(state: TopicState) -> set[int]:
    """Ids of the segments of all loads, adopted, waiting or given up: nothing in their folders refers to an upload.

    Nobody has checked what lies in those that are not adopted, nor what a signed address may have brought there later.
    """
    return {segment for load in state.loads for segment in load.segments}


def adopted(state: TopicState, segments: Sequence[Segment], *, version: int) -> TopicState:
    """The state in which the load of these segments has been adopted, by the topic.json of that version."""
    done = {"version": version, "ends": tuple(segment.end_offset or 0 for segment in segments)}
    loads = (load.model_copy(update=done) if load.first_segment == segments[0].id else load for load in state.loads)
    return state.model_copy(update={"loads": tuple(loads)})


def without_loads(state: TopicState, *, now_us: int) -> TopicState:
    """The state of a deleted topic: what was reserved is given up, and no later topic of its name has these ids."""
    above = max([state.next_segment, *(load.segments.stop for load in state.loads)])
    left = state.model_copy(update={"next_segment": above})
    for load in state.loads:
        if load.reserved:
            left = _given_up(left, load, now_us)
    return left.model_copy(update={"loads": tuple(load for load in left.loads if load.abandoned)})


def _given_up(state: TopicState, load: Load, now_us: int) -> TopicState:
    loads = tuple(each.model_copy(update={"abandoned": True}) if each is load else each for each in state.loads)
    removals = (*state.removals, *(Removal(segment=segment, since_us=now_us) for segment in load.segments))
    return state.model_copy(update={"loads": loads, "removals": removals})


def _without_the_gone(state: TopicState) -> TopicState:
    """Without adopted loads whose segments retention has taken, and without those given up that nothing speaks of.

    Of the latter a record with ids ahead of `next_segment` goes only when no other reserved load has lower ones, and
    `next_segment` passes them by: else what is opened would overtake that load.
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
