"""Help and errors of commands, read as somebody who does not know Python."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from mq.cli.command_line import app
from mq.cli.main import run


def names(group: Any, *path: str) -> Iterator[list[str]]:
    for name, command in group.commands.items():
        yield [*path, name]
        # Jobs have a parser of their own.
        if hasattr(command, "commands") and name != "pipeline":
            yield from names(command, *path, name)


COMMANDS = [[], *names(typer.main.get_command(app))]


def help_of(words: list[str], capsys: pytest.CaptureFixture[str], flag: str = "--help") -> str:
    assert run([*words, flag]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_no_words_of_python(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = help_of(words, capsys)
    assert not re.search(r"<\w|\bbool\b|\bint\b|<=|\{|\[\[|\bstr\b|None|INTEGER", text), text
    # A duration is written with its unit, and so is its default.
    assert not re.search(r"DURATION +Seconds|\d\.0\b(?!\.)", text), text
    assert help_of(words, capsys, "-h") == text


def test_values_are_shown_as_people_write_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    publish, local, serve = (
        " ".join(help_of([command], capsys).replace("│", " ").split()) for command in ("publish", "local", "serve")
    )
    assert "Usage: mq publish [OPTIONS] TOPIC [VALUE]..." in publish
    assert "--dry-run Publish nothing" in publish
    assert "--non-finite refuse|null|text What" in publish
    assert "--brokers N (1 to 50) How many brokers to run. [default: 3]" in local
    assert "--port N Port to listen on; 0 takes a free one. [env var: BRAIDMQ_PORT] [default: 8080]" in serve
    assert "--idle-timeout DURATION Time that a connection stays open" in serve


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topic", "create", "t", "--segments", "x"], "'--segments': it must be a whole number"),
        (["topic", "create", "t", "--segments", "0"], "'--segments': it must be at least 1"),
        (["bench", "--batch", "9999999"], "'--batch': it must be at most 1000000"),
        (["topic", "split", "t", "x"], "'SEGMENT': it must be a whole number"),
        (["publish", "t", "--format", "x"], "'--format': 'x' is not one of 'lines',"),
        (["serve", "--port", "x"], "mq: --port: it must be a whole number, not 'x'"),
        (["serve", "--scrub-days", "x"], "mq: --scrub-days: it must be a number, not 'x'"),
        (["serve", "--scrub-days", "-1"], "mq: --scrub-days: it must be at least 0, not '-1'"),
        (["serve", "--metrics", "x"], "mq: --metrics: it must be 'authorized' or 'any', not 'x'"),
        (["config", "show", "--port", "99999"], "mq: --port: it must be at most 65535, not '99999'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_errors_say_what_would_be_right(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) != 0
    text = capsys.readouterr().err
    assert said in text and text.count("\n") == 1
