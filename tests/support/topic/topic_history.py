"""The recorded versions of a topic.json, each checked by itself and against the one before."""

from filer.errors import CorruptFile
from filer.topic.topic_state import Segment, TopicState, broken_invariants


class TopicHistory:
    """The versions of one topic.json, the oldest first; `complaints` say what is wrong with any of them."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.versions = 0
        self.complaints: list[str] = []
        self._data = b""
        self._state: TopicState | None = None

    def record(self, data: bytes) -> None:
        """Check the current version, unless it is the last one again."""
        if data == self._data:
            return
        self._data = data
        self.versions += 1
        try:
            state = TopicState.from_json(data)
        except CorruptFile as error:
            self.complaints.append(f"{self.topic}: {error}")
            return
        broken = list(broken_invariants(state))
        if self._state is not None:
            broken += broken_succession(self._state, state)
        self.complaints += [f"{self.topic}: version {state.version}: {complaint}" for complaint in broken]
        self._state = state


def broken_succession(before: TopicState, after: TopicState) -> list[str]:
    """What is wrong between two versions of a topic, even with other versions between them."""
    complaints = []
    if after.version <= before.version:
        complaints.append(f"follows version {before.version}")
    if after.next_segment < before.next_segment:
        complaints.append(f"the next segment goes back from {before.next_segment} to {after.next_segment}")
    for segment in after.segments:
        was = _planned(before, segment.id)
        if was is not None:
            complaints += _broken_segment(was, segment)
        elif segment.id < before.next_segment:
            complaints.append(f"segment {segment.id} is back, or was never planned")
    return complaints


def _planned(state: TopicState, segment_id: int) -> Segment | None:
    """The segment as a state has it, or as its transition is about to adopt or open it."""
    planned = (*state.transition.adopt, *state.transition.open) if state.transition else ()
    return next((segment for segment in (*state.segments, *planned) if segment.id == segment_id), None)


def _broken_segment(before: Segment, after: Segment) -> list[str]:
    fixed = ("start_slot", "stop_slot", "brokers", "opened_us", "predecessors")
    complaints = [
        f"segment {after.id}: {name} was {getattr(before, name)} and is {getattr(after, name)}"
        for name in fixed
        if getattr(before, name) != getattr(after, name)
    ]
    if before.state == "sealed" and (after.state, after.end_offset) != ("sealed", before.end_offset):
        complaints.append(
            f"segment {after.id} was sealed at {before.end_offset} and is {after.state} {after.end_offset}"
        )
    if after.start_offset < before.start_offset:
        complaints.append(f"segment {after.id} began at {before.start_offset} and begins at {after.start_offset}")
    return complaints
