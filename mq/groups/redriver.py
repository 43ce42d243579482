"""Finds the dead letters of groups, and publishes them to the topic of their group again."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from filer.errors import InvalidInput, ObjectNotFound, Remedy
from filer.event_log import EventLog
from filer.format.requests import RequestId
from filer.format.schema import TOPIC_FIELD
from filer.stores.store import Store
from filer.uploads import Reference, Uploads
from groups.queue.redrives import Redrives, count_of
from groups.records import Done, Redriving
from mq.base.errors import Conflict, InvalidReference, NotFound
from mq.groups.dead_letter_rows import member_of, payload_of, redriven
from mq.groups.group_source import GroupSource, MakeReader
from mq.groups.letter_owner import LetterOwner, owner_of
from mq.topic.run import Run
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_view import TopicView, rows_of_members

PAGE_ROWS, PAGE_BYTES = 1_000, 8 * 1024 * 1024
MOST_LETTERS = 1_000

_log = EventLog(__name__)


@dataclass(slots=True)
class Chosen:
    """The dead letters of a redrive: of that `topic`; the settled ones to pass by; whether there are more."""

    topic: str
    letters: list[Done] = field(default_factory=list)
    passed: list[Done] = field(default_factory=list)
    has_more: bool = False

    @property
    def count(self) -> int:
        """How many letters are chosen."""
        return count_of(self.letters)


class Redriver:
    """Reads topics of dead letters, and publishes the chosen ones. `uploads` checks their references."""

    def __init__(
        self,
        topics: TopicRegistry,
        make_reader: MakeReader,
        *,
        store: Store,
        uploads: Callable[[], Uploads],
    ) -> None:
        self._topics, self._make_reader, self._store, self._uploads = topics, make_reader, store, uploads

    async def choose(self, source: GroupSource, group: str, topic: str, redrives: Redrives, most: int) -> Chosen:
        """Return the oldest letters of a group that were not redriven: `most`, and about `PAGE_BYTES`, at the most.

        Raises `InvalidReference` for one whose payload is gone, `Conflict` for one that does not name its member of the
        topic group, and as `TopicReader.read_segment`.
        """
        view, owner = await source.view(), await owner_of(source, group, redrives)
        chosen = Chosen(topic)
        size_bytes = 0
        async for run in self.unsettled(topic, redrives):
            first = run.end - run.table.num_rows
            row_bytes = run.size_bytes // run.table.num_rows
            for offset, headers in enumerate(run.table["headers"].to_pylist(), first):
                if redrives.is_settled(topic, run.segment, offset):
                    continue
                if not owner.owns(headers):
                    _add(chosen.passed, run.segment, offset)
                elif chosen.count == most or size_bytes > PAGE_BYTES:
                    chosen.has_more = True
                    return chosen
                else:
                    await self._check_letter(view, headers, run.segment, offset)
                    _add(chosen.letters, run.segment, offset)
                    size_bytes += row_bytes
        return chosen

    async def named(
        self,
        source: GroupSource,
        group: str,
        topic: str,
        redrives: Redrives,
        ids: Iterable[tuple[int, int]],
        *,
        discard: bool,
    ) -> Chosen:
        """Return the letters of these ids, without those that were redriven.

        Raises `NotFound` for an id of no such letter, and, unless they are discarded, as `choose`.
        """
        view, owner = None if discard else await source.view(), await owner_of(source, group, redrives)
        chosen = Chosen(topic)
        runtime = await self._topic(topic)
        reader = self._make_reader(TopicView(runtime))
        for segment, offset in sorted(set(ids)):
            row = await _row(runtime, reader, segment, offset)
            headers = None if row is None else row["headers"][0].as_py()
            if not owner.owns(headers):
                raise NotFound("message", _not_owned(owner, headers, f"{segment}-{offset}", topic))
            if not redrives.is_settled(topic, segment, offset):
                if view is not None:
                    await self._check_letter(view, headers, segment, offset)
                _add(chosen.letters, segment, offset)
        return chosen

    async def _check_letter(
        self, view: TopicView, headers: Sequence[tuple[str, bytes]] | None, segment: int, offset: int
    ) -> None:
        """Raise `InvalidReference` for a letter whose payload is gone, `Conflict` for one without a topic to go to."""
        letter = f"{segment}-{offset}"
        try:
            await self._payload(view, headers)
        except InvalidReference as error:
            why = f"dead letter {letter} cannot be redriven: {error}"
            raise InvalidReference(why, Remedy("discard", message=letter)) from error
        if view.is_whole_group and not await self._has_member(view, member_of(headers)):
            raise Conflict(
                "topic-group",
                f"dead letter {letter} cannot be redriven: it does not say to which topic of topic group "
                f"{view.topic!r} it belongs",
                Remedy("publish-and-discard", message=letter),
            )

    async def _has_member(self, view: TopicView, name: str | None) -> bool:
        """Whether that is a topic of the topic group. A letter may name any, and a name may have another owner."""
        grouping = view.state.group
        if name is None or grouping is None or name not in grouping.topics:
            return False
        try:
            return await self._topics.view(name) == TopicView(view.runtime, name)
        except NotFound:
            return False

    async def unsettled(
        self, topic: str, redrives: Redrives, *, segment: int = 0, offset: int = 0
    ) -> AsyncIterator[Run]:
        """Yield pages of a topic of dead letters, from a segment and an offset on, without pages that are all settled.

        A successor has a higher id than its predecessors, so letters of a key come in their order.
        """
        try:
            runtime = await self._topics.topic(topic)
        except NotFound:
            return  # no letter was ever written
        redrives.forget(topic, {each.id: each.start_offset for each in runtime.state.segments})
        reader = self._make_reader(TopicView(runtime))
        for each in runtime.state.segments:
            begin = max(each.start_offset, offset if each.id == segment else 0)
            while each.id >= segment:
                begin = redrives.skip(topic, each.id, begin)
                run = await reader.read_segment(each.id, begin, max_rows=PAGE_ROWS, max_bytes=PAGE_BYTES)
                if not run.table.num_rows:
                    break
                yield run
                begin = run.end

    async def publish(self, source: GroupSource, group: str, redrives: Redrives, redriving: Redriving) -> None:
        """Publish dead letters to the group's topic again, as one request: repeated, they are there once.

        Leaves out letters that retention has removed meanwhile. Raises `BraidError`; then some of them may be stored.
        """
        view = await source.view()
        reader = self._make_reader(TopicView(await self._topics.topic(redriving.topic)))
        pages = [page async for page in _letters(reader, redriving.letters)]
        rows, references = await self._with_payloads(view, group, pages)
        if references:
            batch = _rows_of(view, rows, redriven(rows, view.runtime.schema, group, references))
            request = view.request_of(RequestId(f"redrive {redrives.producer}", redriving.sequence))
            await view.runtime.publisher.publish_rows(batch, batch.nbytes, request)
        _log.info("dead_letters_redriven", topic=view.topic, group=group, messages=len(references))

    async def _with_payloads(
        self, view: TopicView, group: str, pages: Sequence[pa.Table]
    ) -> tuple[pa.Table | None, list[Reference | None]]:
        """Return the letters whose payloads are there, and these. A payload may have gone since, with its message."""
        if not pages:
            return None, []
        rows = pa.concat_tables(pages)
        kept: list[int] = []
        references: list[Reference | None] = []
        for index, headers in enumerate(rows["headers"].to_pylist()):
            try:
                references.append(await self._payload(view, headers))
                kept.append(index)
            except InvalidReference as error:
                _log.warning("dead_letter_left_out", topic=view.topic, group=group, error=error)
        return rows.take(kept), references

    async def _payload(self, view: TopicView, headers: Sequence[tuple[str, bytes]] | None) -> Reference | None:
        """Return the payload that a letter's headers name. Raises `InvalidReference` if it is no upload of the topic.

        For a member of a topic group it has to be the member's own: letters may have been forged.
        """
        reference = payload_of(headers)
        if reference is None:
            return None
        topic, member = view.runtime.topic, member_of(headers) if view.is_whole_group else view.member
        try:
            self._uploads().parse(topic, reference.uri.removeprefix("uploads/"), member=member)
            info = await self._store.head(reference.key(topic))
        except (InvalidInput, ObjectNotFound) as error:
            raise InvalidReference(f"its payload, {reference.uri!r:.200}, is not there: {error}") from error
        if (info.size_bytes, info.etag) != (reference.size_bytes, reference.etag):
            raise InvalidReference(f"its payload, {reference.uri!r:.200}, is not what it was")
        return reference

    async def _topic(self, name: str) -> TopicRuntime:
        try:
            return await self._topics.topic(name)
        except NotFound as error:
            raise NotFound("message", f"there are no dead letters: topic {name!r} is not there") from error


def _not_owned(owner: LetterOwner, headers: Sequence[tuple[str, bytes]] | None, id_: str, topic: str) -> str:
    """Why a message of a topic of dead letters is not one of that group."""
    if owner.owned_before(headers):
        return f"{id_} in {topic!r} is a dead letter of an earlier group {owner.group!r}: publish it again yourself"
    return f"{id_} is no dead letter of group {owner.group!r} in {topic!r}"


def _rows_of(view: TopicView, letters: pa.Table | None, published: pa.RecordBatch) -> pa.RecordBatch:
    """Return the letters as rows of the topic that gets them. In a whole topic group, each row names its member."""
    if not view.is_whole_group:
        return view.rows_of(published)
    assert letters is not None
    members = [member_of(headers) for headers in letters["headers"].to_pylist()]
    return rows_of_members(published, pa.array(members, TOPIC_FIELD.type))


def _add(ranges: list[Done], segment: int, offset: int) -> None:
    if ranges and ranges[-1].segment == segment and ranges[-1].stop == offset:
        ranges[-1] = ranges[-1]._replace(stop=offset + 1)
    else:
        ranges.append(Done(segment, offset, offset + 1))


async def _row(runtime: TopicRuntime, reader: TopicReader, segment: int, offset: int) -> pa.Table | None:
    if segment >= runtime.state.next_segment:
        await runtime.refresh()  # another broker may have opened it
    found = runtime.state.segment(segment)
    if found is None or offset < found.start_offset:
        return None
    run = await reader.read_segment(segment, offset, max_rows=1, max_bytes=1)
    return run.table if run.table.num_rows and run.end == offset + 1 else None


async def _letters(reader: TopicReader, ranges: Iterable[Done]) -> AsyncIterator[pa.Table]:
    for segment, start, stop in ranges:
        while start < stop:
            run = await reader.read_segment(segment, start, max_rows=stop - start, max_bytes=PAGE_BYTES)
            if not run.table.num_rows or (first := run.end - run.table.num_rows) >= stop:
                break
            yield run.table.slice(0, stop - first)
            start = run.end
