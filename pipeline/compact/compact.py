"""`compact`: roll up the small files of a topic, with a task for each roll-up (docs/design.md §4).

The job changes and removes no live file. A task creates a roll-up if it is absent, and reads it back. The brokers
delete the files that it replaces, a grace period after they have taken it in. So if a process is killed at any line,
every message stays readable exactly once, and the next run finds the files that are left to do.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from filer.clock import Clock
from filer.errors import CorruptFile, ObjectNotFound
from filer.format.requests import StoredRequest
from filer.segment.live_files import FileFacts, walk_chain
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_log import FoundFile, SegmentRef, fetch_file
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from filer.topic.catalogue import Catalogue
from filer.upkeep.rollup import roll_up
from pipeline.compact.choices import DEFAULT_OPEN_AGE_SECONDS, DEFAULT_ROLLUP_BYTES
from pipeline.compact.compaction_plan import movable, plan_compaction
from pipeline.stores import run_on_store
from pipeline.topic_files import PART_FILES, LiveFile, list_topic, read_topic
from pipeline.workers import Workers

_WRITER = "pipeline"


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive files of one segment that are to become one roll-up."""

    files: tuple[LiveFile, ...]
    sealed: bool

    @property
    def ref(self) -> SegmentRef:
        """The segment of the files."""
        return self.files[0].ref


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs to roll up, and the number of live files before that."""

    runs: tuple[Run, ...]
    live_files: int


@dataclass(frozen=True, slots=True)
class Rolled:
    """The result of a run. If it was not rolled up, `why_not` says why."""

    segment: int
    files: int
    size_bytes: int
    rolled_bytes: int = 0
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction: the number of live files before and after it, and its runs."""

    files_before: int
    files_after: int
    rolled: tuple[Rolled, ...]
    left: tuple[Rolled, ...]


def compact(
    workers: Workers,
    store: StoreAddress,
    topic: str,
    *,
    rollup_bytes: int = DEFAULT_ROLLUP_BYTES,
    open_age_seconds: float = DEFAULT_OPEN_AGE_SECONDS,
) -> Compaction:
    """Roll up the small files, with a task for each roll-up. Raises any `BraidError`."""
    plan = planned(store, topic, rollup_bytes=rollup_bytes, open_age_seconds=open_age_seconds)
    files = [file for run in plan.runs for file in run.files]
    size_bytes = sum(file.size_bytes for file in files)
    done = workers.run(plan.runs, partial(_task, store), files=len(files), size_bytes=size_bytes)
    rolled = tuple(each for each in done if each.why_not is None)
    left = tuple(each for each in done if each.why_not is not None)
    saved = sum(each.files - 1 for each in rolled)
    return Compaction(plan.live_files, plan.live_files - saved, rolled, left)


def planned(store: StoreAddress, topic: str, *, rollup_bytes: int, open_age_seconds: float) -> Plan:
    """Return what `compact` would roll up now. Raises any `BraidError`."""
    return run_on_store(store, partial(_plan, topic, rollup_bytes=rollup_bytes, open_age_seconds=open_age_seconds))


async def _plan(topic: str, store: Store, clock: Clock, *, rollup_bytes: int, open_age_seconds: float) -> Plan:
    state = await read_topic(store, clock, topic)
    older_than_us = clock.now_us() - int(open_age_seconds * 1e6)
    runs: list[Run] = []
    live_files = 0
    for listed in await list_topic(store, state):
        live_files += len(listed.files)
        files = movable(listed, older_than_us=older_than_us)
        planned = plan_compaction(files, rollup_bytes=rollup_bytes, most_files=PART_FILES)
        runs += (Run(tuple(each), listed.segment.state == "sealed") for each in planned)
    return Plan(tuple(runs), live_files)


def _task(store: StoreAddress, run: Run) -> Rolled:
    """Roll up one run. Runs as a task."""

    async def work(opened: Store, clock: Clock) -> Rolled:
        return await roll_up_run(opened, clock, run)

    return run_on_store(store, work)


async def roll_up_run(store: Store, clock: Clock, run: Run) -> Rolled:
    """Write the run as one roll-up, unless its files are gone meanwhile. Raises any other `BraidError`."""
    files, size_bytes = len(run.files), sum(file.size_bytes for file in run.files)
    try:
        facts, requests = await _run_facts(store, run)
        with ThreadPoolExecutor(1) as executor:
            rolled = await roll_up(
                store, clock, run.ref, facts, broker=_WRITER, executor=executor, requests=requests, share=1.0
            )
    except ObjectNotFound as error:
        return Rolled(run.ref.segment, files, size_bytes, why_not=f"others have rolled it up meanwhile: {error}")
    if await _is_wanted(store, clock, run.ref, rolled):
        return Rolled(run.ref.segment, files, size_bytes, rolled.size_bytes)
    # The roll-up came so late that retention, or the deletion of the topic, has removed its messages. No other process
    # would ever delete it. If we stop before this line, a file stays that no broker and no reader of topic.json uses.
    await store.delete([run.ref.key(rolled.name)])
    return Rolled(run.ref.segment, files, size_bytes, why_not="its messages have expired meanwhile")


async def _is_wanted(store: Store, clock: Clock, ref: SegmentRef, rolled: FileFacts) -> bool:
    """Whether the topic still has messages of the roll-up."""
    record = await Catalogue(store, clock).read(ref.topic)
    segment = None if record is None else record.state.segment(ref.segment)
    return segment is not None and rolled.end > segment.start_offset


async def _run_facts(store: Store, run: Run) -> tuple[Sequence[FileFacts], Sequence[StoredRequest]]:
    """Return the facts about the run's files, and the requests of producers for the footer of the roll-up.

    The files of a sealed segment have no gap up to its end, and its seal holds the producers' windows whole. In an open
    segment the footers say both: a file after a gap was never acknowledged and must not become live.
    """
    if run.sealed:
        return [FileFacts(file.name, file.stop, file.size_bytes, 0, 0, start=file.start) for file in run.files], ()
    found = [await fetch_file(store, run.ref, file.name) for file in run.files]
    chain = walk_chain((each.facts for each in found), run.files[0].start)
    if len(chain.files) != len(found) or chain.end != run.files[-1].stop:
        raise CorruptFile(f"{run.files[0].key} and the {len(found) - 1} files after it are not consecutive")
    return chain.files, _requests_of(run.ref, found)


def _requests_of(ref: SegmentRef, found: Sequence[FoundFile]) -> list[StoredRequest]:
    """Return the newest requests of each producer in these files, up to a window. Older ones no longer count."""
    windows = ProducerWindows()
    for each in found:
        for request, position in each.requests:
            windows.note(request, position, each.facts.last_timestamp_us)
    return windows.stored_between(ref.segment, found[0].facts.base, found[-1].facts.end)
