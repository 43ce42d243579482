"""The command that judges the history of a failed run again."""

from pathlib import Path

import pytest

from tests.cluster.checker import judge
from tests.cluster.checker.history import Attempt, Found, History, NotAHistory, Reader, Request, Sent, Visit

SENT = Sent("k", 0)


def history(*found: Found) -> History:
    reader = Reader(
        "final", "t", "final", joined_seconds=0.0, visits=[Visit("u", 0, 0.0, found=list(found))], finished=True
    )
    attempt = Attempt("u", 0.0, 1.0, "acknowledged", ((0, 0, 1),))
    return History(requests=[Request("p", "t", (SENT,), [attempt])], readers=[reader])


def test_a_clean_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.json"
    history(Found(0, 0, b"k", SENT.value)).write(path)
    assert judge.main([str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "clean"


def test_a_bad_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.json"
    history().write(path)
    assert judge.main([str(path)]) == 1
    out = capsys.readouterr().out
    assert f"lost: {SENT} was acknowledged and is not there" in out
    assert "messages 1 acknowledged, 0 unknown, 0 failed" in out


@pytest.mark.parametrize(
    ("names", "message"),
    [(["other.json"], "other.json is not a history"), (["none.json"], "none.json"), ([], "usage: ")],
    ids=["another file", "no such file", "no argument"],
)
def test_nothing_to_judge(names: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text("[]")
    assert judge.main([str(tmp_path / name) for name in names]) == 2
    assert message in capsys.readouterr().err


def test_another_file_is_not_a_history(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("[]")
    with pytest.raises(NotAHistory):
        History.read(other)
