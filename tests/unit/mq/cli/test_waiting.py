import io

import pytest

from braidmq import BraidMQError, ConnectionBroken, NoConnection, Problem, Waiting
from braidmq.errors import error_of
from mq.cli.waiting import WaitingNotice

GONE = NoConnection("refused")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def away(seconds: float, failure: BraidMQError | None = GONE) -> Waiting:
    return Waiting("http://b:1", seconds, failure)


def told(notice: WaitingNotice, *waits: Waiting | None) -> None:
    for each in waits:
        notice.show(each)


def test_in_a_log_there_are_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    told(WaitingNotice(), *(away(each / 2) for each in range(300)), None)
    lines = log.getvalue().splitlines()
    assert lines[:2] == [f"mq: no answer from http://b:1: retrying, {each} s so far" for each in (2, 7)]
    assert [int(line.split(", ")[1].split()[0]) for line in lines] == [*range(2, 63, 5), 122]


def test_on_a_terminal_one_line_is_written_anew_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    told(WaitingNotice(), away(1), away(2), away(2.6), None, None)
    lines = [f"\r\x1b[Kmq: no answer from http://b:1: retrying, {each} s so far" for each in (2, 3)]
    assert terminal.getvalue() == "".join([*lines, "\r\x1b[K"])


def test_beside_a_progress_bar_there_are_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, above_the_bar = Terminal(), Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    notice = WaitingNotice()
    monkeypatch.setattr("sys.stderr", above_the_bar)
    told(notice, away(2), away(3), None)
    assert terminal.getvalue() == ""
    assert above_the_bar.getvalue() == "mq: no answer from http://b:1: retrying, 2 s so far\n"


def test_another_wait_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    told(WaitingNotice(), away(6), away(1), away(2))
    assert log.getvalue().count("\n") == 2


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        (away(4, None), ""),
        (away(5, None), "waiting for an answer from http://b:1, 5 s so far"),
        (away(2, ConnectionBroken("lost")), "no answer from http://b:1: retrying, 2 s so far"),
        (
            away(2, error_of(Problem("unavailable", "", 503, "the store\nstalls", True), publishing=False)),
            "the store stalls [unavailable]: retrying, 2 s so far",
        ),
    ],
    ids=["slow", "no answer yet", "connection lost", "a refusal"],
)
def test_what_is_waited_for(waiting: Waiting, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    told(WaitingNotice(), waiting)
    assert log.getvalue() == (f"mq: {text}\n" if text else "")
