"""Where the Iceberg table of an export is found: by a catalogue of REST, and without one, by the folder."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pipeline.errors import JobFailed
from pipeline.export import iceberg_table
from pipeline.export.choices import IcebergTarget
from pipeline.export.export import Export, export_topic
from pipeline.export.iceberg_catalog import open_table
from pipeline.export.table_columns import TableColumns
from tests.integration.pipeline.test_export import ICEBERG, Killed, add, expected_rows, export_of, root, rows_of
from tests.support.iceberg.rest_catalog import RestCatalogServer
from tests.support.spark.workers import HERE

__all__ = ["root"]


def run(export: Export, target: IcebergTarget = ICEBERG) -> None:
    export_topic(HERE, export, partial(iceberg_table.finish_run, target))


@pytest.mark.parametrize(
    "columns", [TableColumns(), TableColumns(("segment", "_offset", "value"))], ids=["all", "some"]
)
def test_a_catalogue_of_rest_has_the_table(root: Path, tmp_path: Path, columns: TableColumns) -> None:
    export = replace(export_of(root, tmp_path / "table", "iceberg"), columns=columns)
    with RestCatalogServer(tmp_path) as server:
        target = replace(ICEBERG, catalog=server.url)
        run(export, target)
        asyncio.run(add(root, 11))
        run(export, target)
        assert rows_of(open_table(target, export).scan().to_arrow()) == expected_rows((70, 7, 44))
        assert rows_of(server.catalog.load_table(("braidmq", "t")).scan().to_arrow()) == expected_rows((70, 7, 44))


def test_the_token_of_a_catalogue_of_rest_comes_from_the_configuration_of_pyiceberg(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    export = export_of(root, tmp_path / "table", "iceberg")
    with RestCatalogServer(tmp_path, token="s3cret") as server:
        target = replace(ICEBERG, catalog=server.url)
        with pytest.raises(JobFailed, match=r"the catalogue of the Iceberg table: .*who are you\?"):
            run(export, target)
        monkeypatch.setenv("PYICEBERG_CATALOG__BRAIDMQ__TOKEN", "s3cret")
        # It is read when the module is imported.
        monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
        run(export, target)
        assert server.catalog.table_exists(("braidmq", "t"))


def test_a_catalogue_of_rest_that_is_away_is_told_in_one_line(root: Path, tmp_path: Path) -> None:
    with RestCatalogServer(tmp_path) as server:
        gone = server.url
    with pytest.raises(JobFailed, match="the catalogue of the Iceberg table: ") as away:
        run(export_of(root, tmp_path / "table", "iceberg"), replace(ICEBERG, catalog=gone))
    assert "\n" not in str(away.value)


def by_folder(table: Path) -> list[tuple[int, int, bytes]]:
    """The rows as readers find them that know the folder alone."""
    from pyiceberg.table import StaticTable

    return rows_of(StaticTable.from_metadata(str(table)).scan().to_arrow())


def test_the_folder_alone_is_enough_to_read_the_table(root: Path, tmp_path: Path) -> None:
    export = export_of(root, tmp_path / "table", "iceberg")
    run(export)
    assert by_folder(tmp_path / "table") == expected_rows()
    asyncio.run(add(root, 11))
    run(export)
    assert by_folder(tmp_path / "table") == expected_rows((70, 7, 44))
    # DuckDB adds the ending itself.
    hint = (tmp_path / "table/metadata/version-hint.text").read_text()
    assert (tmp_path / f"table/metadata/{hint}.metadata.json").exists()


@pytest.mark.parametrize("step", ["point_to", "_changed"])
def test_a_run_that_stops_beside_its_hint_is_finished_by_the_next(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before the hint, and after it: before the record says that the run is done."""
    export, real = export_of(root, tmp_path / "table", "iceberg"), iceberg_table._changed

    async def dying(*_: object) -> None:
        raise Killed

    def dying_at_the_end(export: Export, expected: object, wanted: object) -> object:
        if getattr(wanted, "pending", None) is None:
            raise Killed
        return real(export, expected, wanted)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(iceberg_table, step, dying if step == "point_to" else dying_at_the_end)
        run(export)
    run(export)
    assert by_folder(tmp_path / "table") == expected_rows()
