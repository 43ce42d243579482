"""A compacted table of Iceberg: the same rows in fewer files, whoever stops it and wherever."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from filer.clock import ManualClock, SystemClock
from pipeline.commands import parse
from pipeline.errors import JobFailed, WrongUsage
from pipeline.export import iceberg_compaction, iceberg_table
from pipeline.export.choices import InPlace
from pipeline.export.export import Export, export_topic
from pipeline.export.iceberg_catalog import open_table
from pipeline.export.iceberg_compaction import KEEP_SECONDS, Compacted, compact_table
from tests.integration.pipeline.test_export import ICEBERG, add, expected_rows, export_of, root, rows_of, run
from tests.integration.pipeline.test_export_catalogs import by_folder
from tests.support.spark.workers import HERE
from tests.support.store.dying_store import Killed
from tests.support.topic.stored_topic import TOPIC

__all__ = ["root"]
LATER_US = (KEEP_SECONDS + 60) * 1_000_000


@pytest.fixture
def export(root: Path, tmp_path: Path) -> Export:
    """A table of four runs: the last three have files of the open segment."""
    export = export_of(root, tmp_path / "table", "iceberg")
    run(export)
    for _ in range(3):
        asyncio.run(add(root, 5))
        run(export)
    return export


ROWS = expected_rows((70, 7, 48))


def paths(export: Export) -> list[str]:
    found = [task.file.file_path for task in open_table(ICEBERG, export).scan().plan_files()]
    return sorted(path.removeprefix("file://") for path in found)


def data_files(export: Export) -> list[str]:
    return sorted(str(path) for path in Path(export.target.url).rglob("*.parquet"))


def compact(export: Export, *, later_us: int = 0) -> Compacted:
    """With a clock that is ahead, what there is now is old."""
    clock = ManualClock(start_us=SystemClock().now_us() + later_us, seed=len(data_files(export)))
    return compact_table(HERE, ICEBERG, export, clock)


def test_small_files_become_one_and_the_rows_stay(export: Export) -> None:
    before = paths(export)
    assert compact(export) == Compacted(rewritten=4, written=1)
    assert rows_of(open_table(ICEBERG, export).scan().to_arrow()) == by_folder(Path(export.target.url)) == ROWS
    assert len(paths(export)) == len(before) - 3
    assert compact(export) == Compacted()
    # Readers of earlier snapshots go on.
    assert set(before) <= set(data_files(export))


def test_what_no_snapshot_uses_goes_once_it_is_old(export: Export) -> None:
    compact(export)
    found = compact(export, later_us=LATER_US)
    assert (found.rewritten, found.snapshots) == (0, 4) and found.deleted >= 4
    assert data_files(export) == paths(export)
    assert rows_of(open_table(ICEBERG, export).scan().to_arrow()) == by_folder(Path(export.target.url)) == ROWS
    table = open_table(ICEBERG, export)
    assert len(table.snapshots()) == 1
    on_disk = {str(path) for path in (Path(export.target.url) / "metadata").glob("*.avro")}
    assert on_disk <= {path.removeprefix("file://") for path in iceberg_compaction.used_paths(table)}


def test_snapshots_that_stay_can_be_read(export: Export, root: Path) -> None:
    compact(export)
    asyncio.run(add(root, 5))
    run(export)
    table = open_table(ICEBERG, export)
    assert compact(export, later_us=KEEP_SECONDS * 1_000_000 // 2).deleted == 0
    for path in Path(export.target.url).rglob("*"):
        os.utime(path, (0, 0))
    # All files are as old as can be, and each is used by a snapshot.
    assert compact(export).deleted == 0
    counts = [table.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows for each in table.snapshots()]
    assert counts == [110, 115, 120, 125, 125, 130]


def test_the_next_run_adds_to_a_compacted_table(export: Export, root: Path) -> None:
    compact(export)
    compact(export, later_us=LATER_US)
    asyncio.run(add(root, 5))
    run(export)
    assert rows_of(open_table(ICEBERG, export).scan().to_arrow()) == expected_rows((70, 7, 53))
    assert compact(export).rewritten == 2


def test_files_of_the_topic_stay_the_topics(root: Path, tmp_path: Path) -> None:
    export = export_of(root, tmp_path / "table", "iceberg", in_place=InPlace.FINAL)
    run(export)
    of_topic = {path: path.read_bytes() for path in (root / "topics").rglob("*.parquet")}
    compact(export, later_us=LATER_US)
    assert {path: path.read_bytes() for path in (root / "topics").rglob("*.parquet")} == of_topic
    assert rows_of(open_table(ICEBERG, export).scan().to_arrow()) == expected_rows()


@pytest.mark.parametrize("step", ["_rewrite", "data_file_of", "_expire", "point_to", "_clean", "used_paths"])
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_stopped_at_any_step_the_rows_are_there_and_the_next_call_completes(
    export: Export, monkeypatch: pytest.MonkeyPatch, step: str, takes_effect: bool
) -> None:
    real: Callable[..., Any] = getattr(iceberg_compaction, step)

    def dying(*given: Any) -> Any:
        if takes_effect:
            result = real(*given)
            if asyncio.iscoroutine(result):
                return _then_die(result)
        raise Killed

    async def _then_die(coroutine: Any) -> None:
        await coroutine
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(iceberg_compaction, step, dying)
        compact(export)
        compact(export, later_us=LATER_US)
    assert rows_of(open_table(ICEBERG, export).scan().to_arrow()) == by_folder(Path(export.target.url)) == ROWS
    compact(export)
    compact(export, later_us=LATER_US)
    assert data_files(export) == paths(export) and len(paths(export)) == 3
    assert rows_of(open_table(ICEBERG, export).scan().to_arrow()) == by_folder(Path(export.target.url)) == ROWS


def test_a_run_that_comes_in_between_is_not_lost(export: Export, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = iceberg_compaction._rewrite

    def late(*given: Any) -> Any:
        monkeypatch.setattr(iceberg_compaction, "_rewrite", real)
        asyncio.run(add(root, 5))
        run(export)
        return real(*given)

    monkeypatch.setattr(iceberg_compaction, "_rewrite", late)
    with pytest.raises(JobFailed, match="has changed meanwhile, run this again"):
        compact(export)
    assert rows_of(open_table(ICEBERG, export).scan().to_arrow()) == expected_rows((70, 7, 53))


def test_nothing_is_deleted_while_a_run_is_unfinished(
    export: Export, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be about to add files that it has found again, which are old."""
    asyncio.run(add(root, 5))

    def dying(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(iceberg_table, "_commit", dying)
        run(export)
    compact(export)
    assert compact(export, later_us=LATER_US).deleted == 0
    export_topic(HERE, export, partial(iceberg_table.finish_run, ICEBERG))
    assert rows_of(open_table(ICEBERG, export).scan().to_arrow()) == expected_rows((70, 7, 53))


def test_the_command_adds_what_is_new_and_compacts(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["export", TOPIC, "--store", str(root), "--to", str(tmp_path / "table"), "--format", "iceberg", "--compact"]
    for told in ("110 messages added\ntable: 0 files", "5 messages added\ntable: 2 files rewritten as 1, 0 snapshots"):
        command = parse(given)
        command.command(HERE, command)
        assert told in capsys.readouterr().out
        asyncio.run(add(root, 5))
    with pytest.raises(WrongUsage, match="--compact is not for a table of format parquet"):
        parse([*given, "--format", "parquet"])
    with pytest.raises(WrongUsage, match="--dry-run does not say what --compact would do"):
        parse([*given, "--dry-run"])
