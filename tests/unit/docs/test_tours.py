"""The commands of `mq` that the tours have typed in are there, with their options (docs/tours/*.md)."""

import shlex

import pytest
import typer

from mq.cli.command_line import app
from pipeline.commands import parse
from pipeline.errors import WrongUsage
from tests.support.tours import TOURS, steps_of

# Of these characters are the words that end a call.
_PUNCTUATION = frozenset("|&;<>()")
_MQ = typer.main.get_command(app)


def calls_of(text: str) -> list[list[str]]:
    """The words behind each `mq` that a shell would run in a text."""
    words = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, ""
    calls: list[list[str]] = []
    call: list[str] | None = None
    # What begins a command: the start of a line is the same to `shlex` as any space, so `mq` begins one anywhere.
    for word in words:
        if word in ("mq", "$(mq"):
            calls.append(call := [])
        elif set(word) <= _PUNCTUATION:
            call = None
        elif call is not None:
            call.append(word)
    return calls


def unknown_in(words: list[str]) -> str | None:
    """What is wrong with a call: a command or an option that there is not. What the shell puts in is not looked at."""
    if words[:1] == ["pipeline"]:
        return _unknown_to_jobs(words[1:])
    command = _MQ
    words = list(words)
    while hasattr(command, "commands") and words:
        name = words.pop(0)
        if name.startswith(("$", "-")):
            return None
        if name not in command.commands:
            return f"there is no command {name!r}"
        command = command.commands[name]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    return next((f"there is no option {each!r}" for each in words if _is_new(each, known)), None)


def _unknown_to_jobs(words: list[str]) -> str | None:
    """Jobs read their own options."""
    try:
        parse(words)
    except WrongUsage as error:
        return str(error).partition(";")[0]
    return None


def _is_new(word: str, known: set[str]) -> bool:
    return word.startswith("--") and word.partition("=")[0] not in known


CALLS = [
    pytest.param(call, id=f"{page.stem}: {' '.join(call[:3])}")
    for page in sorted(TOURS.glob("*.md"))
    for step in steps_of(page.read_text("utf-8"))
    # Some show what is answered to such an option.
    if step.kind != "python" and "No such option" not in (step.printed or "")
    for call in calls_of(step.text)
]


@pytest.mark.parametrize("call", CALLS)
def test_each_command_and_option_is_there(call: list[str]) -> None:
    assert unknown_in(call) is None


def test_the_tours_have_many() -> None:
    assert len(CALLS) > 30


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("mq topic list", None),
        ("seq 3 | mq publish birds --key a > out; true --wrong", None),
        ("X=1 mq serve --prot 1 &", "there is no option '--prot'"),
        ("echo $(mq topic lst)", "there is no command 'lst'"),
        ("mq pipeline skew birds --hotest 3", "unrecognized arguments: --hotest 3"),
        ("mq subscribe birds \\\n  --form earliest", "there is no option '--form'"),
    ],
)
def test_what_is_wrong_is_found(text: str, wrong: str | None) -> None:
    assert [unknown_in(call) for call in calls_of(text)] == [wrong]


def test_each_tour_is_in_the_index() -> None:
    index = (TOURS / "README.md").read_text("utf-8")
    assert [
        page.name for page in TOURS.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index
    ] == []
