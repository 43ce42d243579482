"""Loading from Spark: how rows are cut into segments, and what a load does when its attempts fail."""

import contextlib
import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructType

from braidmq.bulk_load.loader import TRIES
from braidmq.errors import FileTaken, LoadOvertaken
from braidmq.models import CommittedLoad
from braidmq.spark.writing.load import by_segment_index, load

COMMITTED = CommittedLoad(load="x", version=7, messages=1, segments=())


class ScriptedClient:
    """Its commits fail with `failures`, one after the other; after `commits_of_others` tries the load is committed."""

    def __init__(self, *failures: Exception, commits_of_others: int | None = None) -> None:
        self.failures, self.commits_of_others = list(failures), commits_of_others
        self.tried = self.reserved = 0

    def committed_load(self, topic: str, load: str) -> CommittedLoad | None:
        return COMMITTED if self.tried == self.commits_of_others else None

    def reserve_load(self, topic: str, load: str, *, segments: int) -> int:
        """After a load was overtaken, its name gets other segments."""
        self.reserved = self.tried
        return self.reserved

    def commit_load(self, topic: str, load: str, files: list[Any]) -> CommittedLoad:
        self.tried += 1
        if self.failures:
            raise self.failures.pop(0)
        return COMMITTED


def load_by(client: ScriptedClient, monkeypatch: pytest.MonkeyPatch, *, rows: int = 1) -> CommittedLoad:
    @contextlib.contextmanager
    def open_client(*_: object) -> Iterator[ScriptedClient]:
        yield client

    # The package has a function with the name of the module.
    module = importlib.import_module("braidmq.spark.writing.load")
    monkeypatch.setattr(module, "open_client", open_client)
    monkeypatch.setattr(module, "_write_files", lambda *_, **__: [])
    frame: Any = SimpleNamespace(schema=StructType().add("value", StringType()), count=lambda: rows)
    return load(frame, "t", load="x", segments=1)


OVERTAKEN = LoadOvertaken("overtaken")


def test_an_overtaken_load_is_reserved_and_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ScriptedClient(*[OVERTAKEN] * (TRIES - 1))
    assert load_by(client, monkeypatch) == COMMITTED
    assert client.tried == TRIES


def test_a_load_that_is_always_overtaken_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ScriptedClient(*[OVERTAKEN] * TRIES)
    with pytest.raises(LoadOvertaken):
        load_by(client, monkeypatch)
    assert client.tried == TRIES


@pytest.mark.parametrize("failed", range(1, TRIES + 1))
@pytest.mark.parametrize("failure", [OVERTAKEN, PySparkException("a task failed")])
def test_what_somebody_else_has_committed_is_returned_at_any_try(
    failed: int, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the last try: the load exists, whichever run committed it."""
    client = ScriptedClient(*[failure] * failed, commits_of_others=failed)
    assert load_by(client, monkeypatch) == COMMITTED
    assert client.tried == failed


@pytest.mark.parametrize("failed", range(TRIES + 1))
def test_more_rows_than_somebody_else_has_committed_are_refused(failed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ScriptedClient(*[OVERTAKEN] * failed, commits_of_others=failed)
    with pytest.raises(FileTaken, match="committed with 1 messages, and these are 2"):
        load_by(client, monkeypatch, rows=2)
    assert client.tried == failed


def test_rows_that_a_task_found_to_differ_are_not_reported_as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed load has as many rows, but different ones."""
    client = ScriptedClient(PySparkException("braidmq.errors.FileTaken: other bytes"), commits_of_others=1)
    with pytest.raises(PySparkException, match="other bytes"):
        load_by(client, monkeypatch)


def test_a_failing_task_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ScriptedClient(PySparkException("a task failed"))
    monkeypatch.setattr(client, "reserve_load", lambda *_, **__: 0)
    with pytest.raises(PySparkException, match="a task failed"):
        load_by(client, monkeypatch)
    assert client.tried == 1


def batch(*parts: int) -> pa.RecordBatch:
    return pa.record_batch({"_segment_index": pa.array(parts, pa.int32()), "value": [str(part) for part in parts]})


def test_batches_are_cut_where_the_segment_index_changes() -> None:
    batches = iter([batch(0, 0, 1), batch(), batch(1), batch(2, 2)])
    found = [(part, rows.to_pydict()) for part, rows in by_segment_index(batches)]
    assert found == [
        (0, {"value": ["0", "0"]}),
        (1, {"value": ["1"]}),
        (1, {"value": ["1"]}),
        (2, {"value": ["2", "2"]}),
    ]
