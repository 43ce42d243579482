import re

import pytest

from mq.cli.failures import say
from mq.cli.output import print_json, print_lines, print_table, shown, size, write_text
from mq.cli.terminal_text import TerminalText


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (1234567, "1,234,567"),
        (1234.56, "1,234.6"),
        ("a", "a"),
        ("\x1b[31m\n", "\\x1b[31m\\n"),
    ],
)
def test_values_as_people_read_them(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1.5 * 2**20, "1.5 MiB"), (2**50, "1024.0 TiB")],
)
def test_sizes(size_bytes: float, text: str) -> None:
    assert size(size_bytes) == text


def test_a_table_in_a_pipe_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print_table(("name", "count"), [("[red]a[/red]", 5), (long, 1234)])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [line.split() for line in out.splitlines()] == [
        ["name", "count"],
        ["─" * len(out.splitlines()[1])],
        ["[red]a[/red]", "5"],
        [long, "1,234"],
    ]


def test_json_is_one_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_json({"a": [1, "ä"]})
    assert capsysbinary.readouterr().out == '{"a":[1,"ä"]}\n'.encode()


def test_cells_stand_below_each_other_whatever_their_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("ship", "crossings"), [("さんふらわあ", 5705), ("Ζάκυνθος", 5), ("Ćma", -1)])
    assert capsys.readouterr().out.splitlines() == [
        "ship           crossings",
        "────────────────────────",
        "さんふらわあ       5,705",
        "Ζάκυνθος               5",
        "Ćma                   -1",
    ]


def test_a_table_without_rows_has_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "version"), [])
    assert capsys.readouterr().out == "topic   version\n───────────────\n"


@pytest.mark.parametrize(("term", "bold"), [("xterm", True), ("dumb", False), (None, False)])
def test_a_table_on_a_terminal_has_bold_names(
    term: str | None, bold: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    print_table(("name", "count"), [("a", 5)])
    name, _, row = capsys.readouterr().out.splitlines()
    assert name == ("\x1b[1mname   count\x1b[0m" if bold else "name   count")
    assert row == "a          5"


def test_a_table_that_is_too_wide_for_the_terminal_is_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("name", "count"), [("x" * 100, 5), ("y", 7)])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 40
    assert "".join(lines).count("x") == 100 and len(lines) > 5


HOSTILE = "a\x1b]0;owned\x07\r\x9b2J\x7f\u202eé\tb\n"
HARMLESS = "a\\x1b]0;owned\\x07\\x0d\\x9b2J\\x7f\\u202eé\tb\n"


def test_what_others_have_written_controls_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    write_text(HOSTILE.encode())
    print_lines(HOSTILE.rstrip("\n"))
    print_json({"value": "\x9b\x7f"})
    say(HOSTILE)
    told = capsys.readouterr()
    assert told.out == HARMLESS * 2 + '{"value":"\\x9b\\x7f"}\n'
    assert "\\x1b]0;owned\\x07" in told.err and told.err.rstrip("\n").isprintable()


def test_where_output_is_piped_bytes_stay_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_text(HOSTILE.encode() + b"\xff")
    assert capfdbinary.readouterr().out == HOSTILE.encode() + b"\xff"


def test_a_character_that_is_cut_between_two_pieces_is_shown_whole() -> None:
    text, pieces = TerminalText(), ("日本\x1b".encode() + b"\xff").partition(b"\xa5")
    found = b"".join(text.shown(each, is_last=False) for each in pieces) + text.shown(b"")
    assert found.decode() == "日本\\x1b\\xff"
