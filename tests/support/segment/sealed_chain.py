"""What an heir reads of topic.json where each segment follows the one before it."""

from filer.slots import SLOTS
from filer.topic.catalogue import TopicRecord
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState


class SealedChain:
    """Each segment follows the one before it, which is sealed at its end, as far as `ends` says."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}

    def segment(self, number: int) -> Segment:
        end = self.ends.get(number)
        return Segment(
            id=number, start_slot=0, stop_slot=SLOTS, brokers=("p",), opened_us=0, reason="roll", sealed_us=end,
            predecessors=(number - 1,), state="open" if end is None else "sealed", end_offset=end,
        )  # fmt: skip

    async def read(self, topic: str) -> TopicRecord:
        segments = tuple(map(self.segment, self.ends))
        config = TopicConfig()
        state = TopicState(
            topic=topic, created_us=0, version=1, next_segment=len(segments), config=config, segments=segments
        )
        return TopicRecord(state, "etag")
