"""`compact`: the small files of a topic into large ones, by tasks that each write one (DESIGN.md §4).

Nothing here changes or removes a file that counts: a task creates a roll-up, if absent, and reads it back. The brokers
let the files go that it stands for, a grace period after they have taken it in. So whoever is killed at any line leaves
every message readable once, and what he had not got to is what the next run finds.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from filer.catalogue import Catalogue
from filer.clock import Clock
from filer.errors import CorruptFile, ObjectNotFound
from filer.live_files import FileFacts, walk_chain
from filer.producer_windows import ProducerWindows
from filer.requests import StoredRequest
from filer.rollup import roll_up
from filer.segment_log import FoundFile, SegmentRef, fetch_file
from filer.store import Store
from pipeline.compaction_plan import movable, plan_compaction
from pipeline.store_address import StoreAddress
from pipeline.tasks import run_tasks
from pipeline.topic_files import PART_FILES, LiveFile, list_topic, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_ROLLUP_BYTES = 256 * 1024 * 1024
MOST_ROLLUP_BYTES = 1024 * 1024 * 1024
"""A task holds about twice as much."""
DEFAULT_OPEN_AGE_SECONDS = 3600.0
_WRITER = "pipeline"


@dataclass(frozen=True, slots=True)
class Run:
    """Files of one segment that are to become one."""

    files: tuple[LiveFile, ...]
    sealed: bool

    @property
    def ref(self) -> SegmentRef:
        """Their segment."""
        return self.files[0].ref


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to do, and how many files count as things are."""

    runs: tuple[Run, ...]
    live_files: int


@dataclass(frozen=True, slots=True)
class Rolled:
    """What has become of a run. `why_not` says why it stays as it is."""

    segment: int
    files: int
    size_bytes: int
    rolled_bytes: int = 0
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did to the files that count."""

    files_before: int
    files_after: int
    rolled: tuple[Rolled, ...]
    left: tuple[Rolled, ...]


def compact(
    spark: "SparkSession",
    store: StoreAddress,
    topic: str,
    *,
    rollup_bytes: int = DEFAULT_ROLLUP_BYTES,
    open_age_seconds: float = DEFAULT_OPEN_AGE_SECONDS,
) -> Compaction:
    """Roll up what is small, a task for each file that is made. Raises any `BraidError`."""
    work = partial(_plan, topic, rollup_bytes=rollup_bytes, open_age_seconds=open_age_seconds)
    plan = store.run(work)
    done = run_tasks(spark, plan.runs, partial(_task, store))
    rolled = tuple(each for each in done if each.why_not is None)
    left = tuple(each for each in done if each.why_not is not None)
    saved = sum(each.files - 1 for each in rolled)
    return Compaction(plan.live_files, plan.live_files - saved, rolled, left)


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
    """Runs as a task."""

    async def work(opened: Store, clock: Clock) -> Rolled:
        return await roll_up_run(opened, clock, run)

    return store.run(work)


async def roll_up_run(store: Store, clock: Clock, run: Run) -> Rolled:
    """Write the run as one file, unless it is none any more. Raises any `BraidError` but that."""
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
    # So late came this one that retention, or who deleted the topic, had done with what it holds: nobody would ever
    # delete it. Whoever stops before this line leaves a file that no broker and no reader by topic.json goes to.
    await store.delete([run.ref.key(rolled.name)])
    return Rolled(run.ref.segment, files, size_bytes, why_not="its messages have expired meanwhile")


async def _is_wanted(store: Store, clock: Clock, ref: SegmentRef, rolled: FileFacts) -> bool:
    """Whether the topic still has messages that the roll-up holds."""
    record = await Catalogue(store, clock).read(ref.topic)
    segment = None if record is None else record.state.segment(ref.segment)
    return segment is not None and rolled.end > segment.start_offset


async def _run_facts(store: Store, run: Run) -> tuple[Sequence[FileFacts], Sequence[StoredRequest]]:
    """The run's files as a roll-up takes them, and what it is to say of producers.

    The files of a sealed segment follow each other up to its end, and its seal has the producers' windows whole. Of an
    open one the footers say both: a file behind a gap was never acknowledged and must not come to count.
    """
    if run.sealed:
        return [FileFacts(file.name, file.stop, file.size_bytes, 0, 0, start=file.start) for file in run.files], ()
    found = [await fetch_file(store, run.ref, file.name) for file in run.files]
    chain = walk_chain((each.facts for each in found), run.files[0].start)
    if len(chain.files) != len(found) or chain.end != run.files[-1].stop:
        raise CorruptFile(f"{run.files[0].key} and the {len(found) - 1} files behind it do not follow each other")
    return chain.files, _requests_of(run.ref, found)


def _requests_of(ref: SegmentRef, found: Sequence[FoundFile]) -> list[StoredRequest]:
    """The newest requests of each producer in these files, as many as a window holds; the others count no more."""
    windows = ProducerWindows()
    for each in found:
        for request, position in each.requests:
            windows.note(request, position, each.facts.last_timestamp_us)
    return windows.stored_between(ref.segment, found[0].facts.base, found[-1].facts.end)
