"""Leaders that are killed at any call of their store, and a topic whose every version is recorded and checked."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from filer import keys
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, recover_index
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, MakeData, Store
from filer.topic.catalogue import Catalogue
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState, broken_invariants
from leader.transitions import new_topic
from tests.support.instant_clock import InstantClock
from tests.support.topic.segment_files import append
from tests.support.topic.topic_history import broken_succession

TOPIC = "events"
MESSAGES = {0: 3, 1: 0}


class Killed(BaseException):
    """The process of the leader has ended; nothing of it continues."""


class Chronicle(ForwardingStore):
    """Records every version of topic.json."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.versions: list[TopicState] = []

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        await self.inner.create(key, data, metadata=metadata)
        self._note(key, data() if callable(data) else data)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        new = await self.inner.replace(key, data, etag=etag)
        self._note(key, data)
        return new

    def _note(self, key: str, data: Data) -> None:
        if key == keys.topic(TOPIC):
            self.versions.append(TopicState.from_json(bytes(data)))

    def check(self) -> None:
        """Check each version, and each change from one to the next."""
        opened: set[int] = set()
        for index, state in enumerate(self.versions):
            assert broken_invariants(state) == []
            assert state.version == index + 1
            ids = {s.id for s in state.segments}
            new = ids - opened
            assert not opened or not new or min(new) > max(opened), "an id came back"
            opened |= ids
        for before, after in pairwise(self.versions):
            assert broken_succession(before, after) == []
            for segment in before.segments:
                if segment.state == "sealed" and (now := after.segment(segment.id)) is not None:
                    assert (now.state, now.end_offset) == ("sealed", segment.end_offset)


class World:
    """A topic of two segments, one of them with messages, whose owners are gone. `messages` is how many each has."""

    def __init__(self) -> None:
        self.store = Chronicle(MemoryStore())
        self.messages = dict(MESSAGES)

    async def begin(self) -> "World":
        state = new_topic(TOPIC, TopicConfig(), len(self.messages), lambda segment: ("gone",), now_us=0)
        assert await Catalogue(self.store, InstantClock()).create(state)
        for segment, count in self.messages.items():
            index = SegmentIndex()
            for _ in range(count):
                await append(self.store, SegmentRef(TOPIC, segment), index, 1)
        return self

    async def state(self) -> TopicState:
        record = await Catalogue(self.store, InstantClock()).read(TOPIC)
        assert record is not None
        return record.state

    async def check_done(
        self, state: TopicState | None, *, sealed: Sequence[int] = (0, 1), opened: Sequence[int] = (2, 3)
    ) -> None:
        """The topic has these open segments, or is deleted, and the old ones are sealed behind their last message."""
        assert state == await self.state()
        assert state.transition is None
        assert state.deleted or [s.id for s in state.open_segments] == list(opened)
        for segment in sealed:
            count = self.messages[segment]
            index = await recover_index(self.store, SegmentRef(TOPIC, segment))
            assert (index.end, index.sealed) == (count, True)
            closed = state.segment(segment)
            assert state.deleted or (closed is not None and closed.end_offset == count)
        kept = await Catalogue(self.store, InstantClock()).read_history(TOPIC, after=-1, limit=9)
        ends = [(segment, self.messages[segment]) for segment in sealed]
        assert [(s.id, s.end_offset) for s in kept] == (ends if state.deleted else [])
        self.store.check()


def killing_at(nth: int) -> Callable[[str, str], None]:
    """Dies at the n-th point that its store passes. No other task passes a point after that."""
    left = nth

    def on_point(point: str, key: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise Killed

    return on_point
