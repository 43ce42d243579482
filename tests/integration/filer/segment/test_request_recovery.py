"""Requests with an id are known again after every recovery: by footers, roll-ups, snapshots, predecessors' seals."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

import pytest

from filer import keys
from filer.clock import ManualClock
from filer.format.requests import Position, RequestId, StoredRequest
from filer.format.segment_file import Footer, encode
from filer.keys import FileName
from filer.segment.inheritance import read_inherited
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, fetch_file, list_names, recover_index, seal_at_end
from filer.segment.sequence_window import WINDOW_SEQUENCES
from filer.segment.writer.segment_writer import SegmentWriter
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import ScriptedFaults
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from filer.upkeep.deletion import delete_segment
from filer.upkeep.index_snapshots import snapshot_etag, write_snapshot
from filer.upkeep.segment_upkeep import SegmentUpkeep
from tests.support.segment.segment_owners import GRACE_SECONDS, offset_of, owner, single, stored_values
from tests.support.segment.upkeeps import run_until_idle, upkeep_of
from tests.support.store.dying_store import DyingStore, Killed
from tests.support.topic.segment_files import START_US, rows

REF = SegmentRef("t", 3)
PRODUCERS = ("a", "b")


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_us=START_US + 60_000_000)


async def append_requests(store: Store, index: SegmentIndex, *requests: RequestId, segment: int = REF.segment) -> None:
    """The owner's next file: two messages of each request."""
    ref, base = SegmentRef(REF.topic, segment), index.end
    stored = tuple(StoredRequest(request, Position(segment, base + 2 * n, 2)) for n, request in enumerate(requests))
    table = rows(ref, base, 2 * len(requests))
    last_us = START_US + (base + table.num_rows - 1) * 1000
    footer = Footer(segment, base, table.num_rows, f"owner/{base}", START_US + base * 1000, last_us, requests=stored)
    await store.create(ref.key(FileName(base)), bytes(encode(ref.schema.in_file(table), footer)))
    found = await fetch_file(store, ref, FileName(base))
    index.append(replace(found.facts, start=base), found.requests)


async def filled(store: Store, files: int) -> SegmentIndex:
    """Two producers take turns, and now and then a file has requests of both."""
    index = SegmentIndex()
    for sequence in range(files):
        request = RequestId(PRODUCERS[sequence % 2], sequence)
        other = RequestId(PRODUCERS[(sequence + 1) % 2], sequence)
        await append_requests(store, index, *([request, other] if sequence % 5 == 0 else [request]))
    index.inherit(ProducerWindows())
    return index


def upkeep(store: Store, clock: ManualClock, index: SegmentIndex, executor: Executor) -> SegmentUpkeep:
    return upkeep_of(store, clock, REF, index, executor)


def remembered(index: SegmentIndex) -> list[StoredRequest]:
    return index.windows.stored_between(REF.segment, 0, 1 << 40)


# -- footers, roll-ups, snapshots --------------------------------------------------------------------------


async def test_footers_alone_have_all_requests() -> None:
    store = MemoryStore()
    index = await filled(store, 30)
    again = await recover_index(store, REF)
    assert remembered(again) == remembered(index)
    assert len(remembered(again)) == 36
    assert not again.inherited, "what predecessors knew is for their seals to say"


@pytest.mark.parametrize("snapshot", [True, False], ids=["snapshot", "no snapshot"])
async def test_roll_ups_take_over_what_their_files_said(clock: ManualClock, executor: Executor, snapshot: bool) -> None:
    """The files that said it are gone, and with or without the snapshot nothing is forgotten."""
    store = MemoryStore(clock=clock)
    index = await filled(store, 60)
    maintainer = upkeep(store, clock, index, executor)
    await run_until_idle(maintainer)
    await clock.advance(GRACE_SECONDS + 5)
    await run_until_idle(maintainer)
    names = await list_names(store, REF)
    assert any(name.rolled for name in names) and len(names) < 20
    if not snapshot:
        await store.delete([keys.index_snapshot(REF.topic, REF.segment)])
    again = await recover_index(store, REF)
    assert remembered(again) == remembered(index)
    assert again.inherited == snapshot


async def test_roll_ups_of_roll_ups_forget_what_no_window_has(clock: ManualClock, executor: Executor) -> None:
    """A footer stays as small as the windows are, whatever a roll-up holds."""
    store, index = MemoryStore(clock=clock), SegmentIndex()
    for first in range(0, 3000, 100):
        await append_requests(store, index, *(RequestId("a", first + n) for n in range(100)))
    await run_until_idle(upkeep(store, clock, index, executor))
    rolled = [name for name in await list_names(store, REF) if name.rolled]
    said = [each for name in rolled for each in (await fetch_file(store, REF, name)).requests]
    assert 0 < len(said) <= WINDOW_SEQUENCES
    await store.delete([keys.index_snapshot(REF.topic, REF.segment)])
    again = await recover_index(store, REF)
    assert remembered(again) == remembered(index)
    assert again.windows.look_up(RequestId("a", 1999))[0].expired
    assert not again.windows.look_up(RequestId("a", 2000))[0].expired


async def test_a_snapshot_and_what_came_after_it(executor: Executor) -> None:
    store = MemoryStore()
    index = await filled(store, 20)
    await write_snapshot(store, REF, index, etag=None, executor=executor)
    await append_requests(store, index, RequestId("late", 1))
    again = await recover_index(store, REF)
    assert remembered(again) == remembered(index)
    assert again.inherited


async def test_a_recovery_that_was_overtaken_by_a_roll_up(clock: ManualClock, executor: Executor) -> None:
    """Names go on beyond a gap: all are read once more, and what the snapshot knew of producers stays known."""
    store = MemoryStore(clock=clock)
    index = await filled(store, 10)
    inherited = ProducerWindows()
    inherited.note(RequestId("before", 1), Position(1, 5, 1), START_US)
    index.inherit(inherited)
    await write_snapshot(store, REF, index, etag=None, executor=executor)
    old = (await store.get(keys.index_snapshot(REF.topic, REF.segment))).data
    for sequence in range(100, 130):
        await append_requests(store, index, RequestId("c", sequence))
    maintainer = upkeep(store, clock, index, executor)
    await run_until_idle(maintainer)
    await clock.advance(GRACE_SECONDS + 5)
    await run_until_idle(maintainer)
    etag = await snapshot_etag(store, REF)
    assert etag is not None
    await store.replace(keys.index_snapshot(REF.topic, REF.segment), old, etag=etag)
    again = await recover_index(store, REF)
    assert (again.end, again.inherited) == (index.end, True)
    assert remembered(again) == remembered(index)
    assert again.windows.look_up(RequestId("before", 1))[0].position == Position(1, 5, 1)


async def test_upkeep_that_is_killed_at_every_request_forgets_nothing(clock: ManualClock, executor: Executor) -> None:
    """At every moment of every round a recovery knows all requests, and stopping there changes nothing of it."""
    stopped = 0
    for request in range(200):
        for before in (True, False):
            now = ManualClock(start_us=START_US + 60_000_000)
            memory = MemoryStore(clock=now)
            expected = remembered(await filled(memory, 30))
            dying = DyingStore(memory)
            index = await recover_index(memory, REF)
            maintainer = upkeep(dying, now, index, executor)
            dying.die_at(request, before=before)
            try:
                await run_until_idle(maintainer)
                await now.advance(GRACE_SECONDS + 5)
                await run_until_idle(maintainer)
            except Killed:
                stopped += 1
            assert remembered(await recover_index(memory, REF)) == expected
        if not dying.dead:
            break
    assert stopped > 20


# -- an owner that is killed -------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("request_number", range(12))
async def test_an_owner_is_killed_at_a_request_and_its_publishers_repeat(request_number: int, before: bool) -> None:
    """However far it got, the next owner stores the missing messages once, and answers the same positions."""
    clock, memory = ManualClock(), MemoryStore()
    dying = DyingStore(memory).die_at(request_number, before=before)
    answers = await publish_all(owner(dying, clock, REF, SegmentIndex()))
    survivor = owner(memory, clock, REF, await recover_index(memory, REF), broker="b.1")
    again = await publish_all(survivor)
    assert None not in again
    assert all(first in (None, second) for first, second in zip(answers, again, strict=True))
    assert sorted(await stored_values(memory, REF)) == [b"%d" % n for n in range(5)]


async def publish_all(writer: SegmentWriter) -> list[int | None]:
    """Five requests, one after the other; offsets of those that were answered."""
    await writer.inheritance.wait()
    offsets: list[int | None] = []
    for sequence in range(5):
        try:
            offsets.append(offset_of(await writer.append(single(b"%d" % sequence), 1, RequestId("p", sequence))))
        except Exception:
            offsets.append(None)
    await writer.close()
    return offsets


# -- predecessors ------------------------------------------------------------------------------------------


class Lineage:
    """Segments 0 and 1, side by side and sealed, and segment 2 that follows both."""

    def __init__(self, store: Store, *, is_told: bool) -> None:
        self.store, self.clock, self._is_told = store, ManualClock(), is_told
        self._known: TopicState | None = None
        self._seal_offsets: dict[int, int | None] = {}
        self.catalogue = Catalogue(store, self.clock)
        self.heir = _segment(2, 0, 65_536, predecessors=(0, 1))

    async def seal(self, segment: int, *requests: RequestId, with_rows: bool = False) -> int:
        """A segment whose owner stores these, and seals it with the last one in the seal or by itself."""
        ref, index = SegmentRef(REF.topic, segment), SegmentIndex()
        writer = owner(self.store, self.clock, ref, index)
        await writer.inheritance.wait()
        for request in requests[:-1] if with_rows else requests:
            await writer.append(single(b"x"), 1, request)
        waiting = [writer.append(single(b"x"), 1, request) for request in requests[-1:] if with_rows]
        end = await writer.seal()
        for future in waiting:
            await future
        await writer.close()
        assert bool(index.files[-1].count) == with_rows
        self._seal_offsets[segment] = index.seal_offset
        return end

    def forget_seal_offsets(self) -> None:
        """As where brokers of an older version have sealed the segments."""
        self._seal_offsets.clear()

    async def opened(self, ends: Sequence[int]) -> None:
        sealed = [
            _segment(
                n, *bounds, state="sealed", successors=(2,), end_offset=end, sealed_us=1,
                seal_offset=self._seal_offsets.get(n),
            )
            for n, (end, bounds) in enumerate(zip(ends, ((0, 100), (100, 65_536)), strict=True))
        ]  # fmt: skip
        state = TopicState(
            topic=REF.topic, created_us=0, version=1, next_segment=3, config=TopicConfig(),
            segments=(*sealed, self.heir),
        )  # fmt: skip
        assert await self.catalogue.create(state)
        self._known = state if self._is_told else None

    async def inherited(self) -> ProducerWindows:
        return await read_inherited(self.store, self.catalogue, REF.topic, self.heir, self._known)


def _segment(number: int, start: int, stop: int, **more: object) -> Segment:
    facts = {"id": number, "start_slot": start, "stop_slot": stop, "brokers": ("b",), "opened_us": 0}
    return Segment.model_validate({**facts, "reason": "create", **more})


@pytest.fixture(params=[True, False], ids=["record at hand", "record to be read"])
async def lineage(request: pytest.FixtureRequest) -> AsyncIterator[Lineage]:
    yield Lineage(MemoryStore(), is_told=request.param)


@pytest.mark.parametrize("with_rows", [True, False], ids=["seal with messages", "empty seal"])
async def test_a_successor_reads_the_seals_of_its_predecessors(lineage: Lineage, with_rows: bool) -> None:
    """Each parent speaks for its own slots, though its windows may say more."""
    both, left = RequestId("p", 1), RequestId("p", 2)
    ends = [await lineage.seal(0, both, left, with_rows=with_rows), await lineage.seal(1, both, with_rows=with_rows)]
    await lineage.opened(ends)
    windows = await lineage.inherited()
    assert (windows.start, windows.stop) == (0, 65_536)
    assert [(p.start, p.stop, p.position) for p in windows.look_up(both)] == [
        (0, 100, Position(0, 0, 1)),
        (100, 65_536, Position(1, 0, 1)),
    ]
    assert [part.position for part in windows.look_up(left)] == [Position(0, 1, 1), None]


@pytest.mark.parametrize("with_rows", [True, False], ids=["seal with messages", "empty seal"])
async def test_a_seal_is_found_without_reading_the_files_before_it(with_rows: bool) -> None:
    """Publishers with requests of an id wait for it."""
    asked: Counter[str] = Counter()
    store = FailingStore(
        MemoryStore(), ScriptedFaults(), clock=ManualClock(), on_point=lambda point, key: asked.update([point])
    )
    lineage = Lineage(store, is_told=True)
    requests = [RequestId("p", sequence) for sequence in range(1, 21)]
    await lineage.opened([await lineage.seal(0, *requests, with_rows=with_rows), await lineage.seal(1)])
    asked.clear()
    windows = await lineage.inherited()
    assert [windows.look_up(each)[0].position for each in requests] == [Position(0, n, 1) for n in range(20)]
    assert asked == {"before get": 2, "after get": 2}, "each seal by its name"


@pytest.mark.parametrize("with_rows", [True, False], ids=["seal with messages", "empty seal"])
async def test_a_seal_that_nobody_has_named_is_found(lineage: Lineage, with_rows: bool) -> None:
    ends = [await lineage.seal(0, RequestId("p", 1), with_rows=with_rows), await lineage.seal(1)]
    lineage.forget_seal_offsets()
    await lineage.opened(ends)
    assert (await lineage.inherited()).look_up(RequestId("p", 1))[0].position == Position(0, 0, 1)


async def test_a_file_beyond_the_seal_is_not_taken_for_it(lineage: Lineage) -> None:
    """An owner that stood still made it: it was never acknowledged."""
    ends = [await lineage.seal(0, RequestId("p", 1), with_rows=True), await lineage.seal(1)]
    stray = SegmentIndex(ends[0])
    await append_requests(lineage.store, stray, RequestId("zombie", 1), segment=0)
    await lineage.opened(ends)
    windows = await lineage.inherited()
    assert windows.look_up(RequestId("p", 1))[0].position == Position(0, 0, 1)
    assert windows.look_up(RequestId("zombie", 1))[0].position is None


async def test_predecessors_that_have_left_the_topic_leave_nothing(lineage: Lineage) -> None:
    ends = [await lineage.seal(0, RequestId("p", 1)), await lineage.seal(1, RequestId("p", 1))]
    await lineage.opened(ends)
    await lineage.catalogue.change(REF.topic, lambda state: state.model_copy(update={"segments": state.segments[1:]}))
    await delete_segment(lineage.store, REF.topic, 0)
    assert [part.position for part in (await lineage.inherited()).look_up(RequestId("p", 1))] == [
        None,
        Position(1, 0, 1),
    ]


async def test_where_the_seal_is_gone_what_other_files_know_counts(lineage: Lineage) -> None:
    """And what a known producer seems to have left out is refused: it may have been in a file that is gone."""
    ends = [await lineage.seal(0, *(RequestId("p", sequence) for sequence in (1, 2, 3))), await lineage.seal(1)]
    await lineage.opened(ends)
    gone = [SegmentRef(REF.topic, 0).key(FileName(offset)) for offset in (1, 3)]
    await lineage.store.delete(gone)
    windows = await lineage.inherited()
    found = [windows.look_up(RequestId("p", sequence))[0] for sequence in (1, 2, 3, 4)]
    assert [each.position for each in found] == [Position(0, 0, 1), None, Position(0, 2, 1), None]
    assert [each.expired for each in found] == [False, True, False, False]


@pytest.mark.parametrize("size_bytes", [0, 40])
async def test_where_the_seal_is_damaged_what_other_files_know_counts(lineage: Lineage, size_bytes: int) -> None:
    ends = [await lineage.seal(0, RequestId("p", 1)), await lineage.seal(1)]
    await lineage.opened(ends)
    seal = SegmentRef(REF.topic, 0).key(FileName(1))
    data = (await lineage.store.get(seal)).data[:size_bytes]
    await lineage.store.delete([seal])
    await lineage.store.create(seal, data)
    assert (await lineage.inherited()).look_up(RequestId("p", 1))[0].position == Position(0, 0, 1)


async def test_sealing_in_an_owner_s_stead_hands_on_what_it_had_inherited(lineage: Lineage) -> None:
    """The owner of the heir died before it stored anything; another broker seals it and reads the same."""
    request = RequestId("p", 1)
    await lineage.opened([await lineage.seal(0, request), await lineage.seal(1)])
    ref = SegmentRef(REF.topic, 2)
    sealed = await seal_at_end(
        lineage.store, lineage.clock, ref, start_offset=0, writer="c.1", grace_seconds=GRACE_SECONDS,
        inherit=lineage.inherited,
    )  # fmt: skip
    assert (sealed.end, sealed.sealed, sealed.inherited) == (0, True, True)
    assert [part.position for part in sealed.windows.look_up(request)] == [Position(0, 0, 1), None]
    found = await seal_at_end(
        lineage.store, lineage.clock, ref, start_offset=0, writer="d.1", grace_seconds=GRACE_SECONDS,
        inherit=lineage.inherited,
    )  # fmt: skip
    assert found.sealed and not found.inherited, "of a seal that stands only its footer is asked"
