"""What `client.load` does after each try if others commit the same load, or another one before it."""

from typing import Any

import pyarrow as pa
import pytest

from braidmq import AsyncClient, FileTaken, LoadCommitted, LoadOvertaken
from braidmq.bulk_load.loader import TRIES, Loader
from braidmq.models import CommittedLoad

COMMITTED = CommittedLoad(load="x", version=7, messages=2, segments=())
FAILURES = [LoadOvertaken("overtaken"), LoadCommitted("committed")]


class OthersAtWork:
    """Each try fails with `failure`; after `commits_of_others` tries the load is committed."""

    def __init__(self, failure: Exception, monkeypatch: pytest.MonkeyPatch, *, commits_of_others: int | None) -> None:
        self.failure, self.commits_of_others, self.tried = failure, commits_of_others, 0
        monkeypatch.setattr(Loader, "_run", self.run)
        monkeypatch.setattr(Loader, "committed", self.committed)

    async def run(self, *_: Any) -> CommittedLoad:
        self.tried += 1
        raise self.failure

    async def committed(self, *_: Any) -> CommittedLoad | None:
        return COMMITTED if self.tried == self.commits_of_others else None


async def load(rows: int) -> CommittedLoad:
    async with AsyncClient("http://127.0.0.1:8080") as client:
        return await client.load("t", pa.table({"value": ["a"] * rows}), load="x")


@pytest.mark.parametrize("tried", range(TRIES + 1))
@pytest.mark.parametrize("failure", FAILURES)
async def test_what_somebody_else_has_committed_is_returned_at_any_try(
    tried: int, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the last try: the load exists, whichever run committed it."""
    others = OthersAtWork(failure, monkeypatch, commits_of_others=tried)
    assert await load(rows=2) == COMMITTED
    assert others.tried == tried


@pytest.mark.parametrize("tried", range(TRIES + 1))
async def test_more_rows_than_somebody_else_has_committed_are_refused(
    tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    OthersAtWork(FAILURES[0], monkeypatch, commits_of_others=tried)
    with pytest.raises(FileTaken, match="committed with 2 messages, and these are 3"):
        await load(rows=3)


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_load_that_always_fails_is_given_up(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    others = OthersAtWork(failure, monkeypatch, commits_of_others=None)
    with pytest.raises(type(failure)):
        await load(rows=2)
    assert others.tried == TRIES
