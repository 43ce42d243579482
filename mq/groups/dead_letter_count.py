"""How many dead letters of a group are open: neither redriven nor discarded, and still there."""

from filer.errors import BraidError
from groups.offset_set import OffsetSet, ranges_of
from groups.queue.progress import QueueProgress
from mq.base.errors import NotFound
from mq.groups.group_source import GroupSource
from mq.groups.letter_owner import LetterOwner, owner_of
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_view import TopicView

PAGE_ROWS, PAGE_BYTES = 2_000, 4 * 1024 * 1024
MOST_PAGES = 10
"""So many pages are read in one go. If there are more letters, the next call goes on from there."""


class LettersSeen:
    """The letters of one group that were found in its topic of dead letters, and how far that was searched."""

    def __init__(self) -> None:
        self.topic = ""
        self.owner: LetterOwner | None = None
        self.own: dict[int, OffsetSet] = {}
        self.reached: dict[int, int] = {}

    def begin(self, topic: str, owner: LetterOwner) -> None:
        """Begin anew if it is another topic, or another group of that name."""
        if (topic, owner) != (self.topic, self.owner):
            self.topic, self.owner, self.own, self.reached = topic, owner, {}, {}

    @property
    def count(self) -> int:
        """How many open letters were found."""
        return sum(map(len, self.own.values()))


async def open_letters(source: GroupSource, group: str, progress: QueueProgress, seen: LettersSeen) -> int:
    """Return how many letters the group shows: those of `seen`, and those that came since.

    The group's records say which are redriven or discarded, whichever version wrote them. Only a letter's headers say
    whether it is the group's own. Letters that were not searched, or cannot be read, may be its own: no more of them
    count than messages were ever given up.
    """
    target = progress.settings.dead_letter
    if target is None:
        return 0
    if not progress.dead_count and target.topic not in source.topics:
        return 0  # no letter was ever written, and a look at the store is not worth it
    try:
        owner = await owner_of(source, group, progress.redrives)
        seen.begin(target.topic, owner)
        unread = await _look(source, owner, progress, seen, await source.topics.topic(target.topic))
    except NotFound:
        return 0
    except BraidError:
        unread = progress.dead_count if not seen.reached else 0
    return max(seen.count, min(seen.count + unread, progress.dead_count))


async def _look(
    source: GroupSource, owner: LetterOwner, progress: QueueProgress, seen: LettersSeen, runtime: TopicRuntime
) -> int:
    """Look at the letters that came since; returns how many are left."""
    redrives, topic = progress.redrives, runtime.topic
    reader, segments = source.make_reader(TopicView(runtime)), runtime.state.segments
    pages = unread = 0
    for segment in segments:
        end = await runtime.reads.end_of(segment.id)
        own = seen.own.setdefault(segment.id, OffsetSet())
        begin = redrives.skip(topic, segment.id, max(segment.start_offset, seen.reached.get(segment.id, 0)))
        while begin < end and pages < MOST_PAGES:
            run = await reader.read_segment(segment.id, begin, max_rows=PAGE_ROWS, max_bytes=PAGE_BYTES)
            if run.end <= begin:
                break
            first, pages = run.end - run.table.num_rows, pages + 1
            rows = owner.rows(run.table["headers"])
            own.add_all(ranges_of(first + row for row in rows))
            begin = redrives.skip(topic, segment.id, run.end)
        seen.reached[segment.id] = begin
        own.remove(0, segment.start_offset)
        own.remove_all(redrives.settled(topic, segment.id))
        unread += max(end - begin, 0)
    for gone in seen.own.keys() - {segment.id for segment in segments}:
        del seen.own[gone], seen.reached[gone]
    return unread
