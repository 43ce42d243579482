"""No error that a broker, a client or a job can raise speaks HTTP to somebody who types commands."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from braidmq.command_words import in_command_words
from braidmq.errors import Problem, error_of
from mq.http.problems import _KINDS

ROOT = Path(__file__).parents[3]
FOLDERS = ("filer", "leader", "mq", "clients/braidmq", "pipeline")
SPEAKS_HTTP = re.compile(
    r"\b(GET|PUT|POST|DELETE|HEAD|PATCH)\b|/v1\b|\bcurl\b|\bquery\b|\bparameter\b|\bHTTP \d|\bthe body\b|[?&]\w+="
)
# What stands in the places of f-strings; all others are a word.
VALUES = {
    "response.request.method": "GET",
    "request.method": "POST",
    "response.request.url.path": "/v1/topics/birds/messages",
    "request.url.path": "/v1/topics/birds",
    "response.request.url": "http://127.0.0.1:8080/v1/topics/birds/messages?limit=1",
    "_address(response)": "http://127.0.0.1:8080",
    "self._upload_path": "/v1/topics/birds/uploads",
    "f'{path:.200}'": "/v1/topics/birds/seen",
    "response.status_code": "404",
    "problem.status": "404",
    "problem.slug": "topic-not-found",
}


def templates(tree: ast.AST, errors: set[str]) -> Iterator[tuple[int, str]]:
    """The text of each error that the module makes: strings in `raise`, and in calls of errors and problems."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from texts(node.exc)
        elif isinstance(node, ast.Call) and is_error(node.func, errors):
            yield from texts(node)
        elif is_detail(node):
            yield from texts(node.value)  # type: ignore[attr-defined]


def is_detail(node: ast.AST) -> bool:
    """Whether a statement makes the detail of a problem, or returns a text."""
    if isinstance(node, ast.Assign):
        return any("detail" in ast.unparse(target) for target in node.targets)
    return isinstance(node, ast.Return) and isinstance(node.value, ast.JoinedStr)


def is_error(function: ast.expr, errors: set[str]) -> bool:
    name = ast.unparse(function).rpartition(".")[2]
    return name in errors or name in ("Problem", "_refusal")


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The longest strings in an expression, with values in their places."""
    if isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(map(value_of, node.values))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def value_of(part: ast.expr) -> str:
    """What a part of an f-string prints."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    return VALUES.get(ast.unparse(part.value)) or VALUES.get(ast.unparse(ast.JoinedStr([part])), "birds")


def error_names(trees: Mapping[str, ast.Module]) -> set[str]:
    """The names of all classes whose bases are errors, directly or not."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"BraidError", "Exception", "ValueError"}
    while fresh := {name for name, of in bases.items() if of & found} - found:
        found |= fresh
    return found


def trees() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8"))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


# Not while tests are collected: each worker would parse the whole product.
def test_no_error_speaks_http_to_the_command_line() -> None:
    parsed = trees()
    names = error_names(parsed)
    # Queries by Spark, and the tickets of pages in a browser, are not of the command line.
    others = ("clients/braidmq/spark/", "mq/security/tickets.py")
    commands = {name: tree for name, tree in parsed.items() if not name.startswith(others)}
    found = {(f"{name}:{line}", text) for name, tree in commands.items() for line, text in templates(tree, names)}
    told = sorted((place, text) for place, text in found if " " in text)
    speaking = [(place, text) for place, text in told if SPEAKS_HTTP.search(text)]
    # The walk finds the errors.
    assert len(told) > 400
    assert any("create it with PUT /v1/topics/birds" in text for _, text in speaking)
    assert len(speaking) > 15
    wrong = [f"{place}: {words}" for place, text in speaking if SPEAKS_HTTP.search(words := in_command_words(text))]
    assert not wrong, "add rules to braidmq/command_words.py for these"


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: str(kind[1]))
@pytest.mark.parametrize("publishing", [False, True], ids=["reading", "publishing"])
def test_every_kind_of_problem_is_told_without_http(kind: tuple[Any, str, str, int, bool], publishing: bool) -> None:
    _, slug, title, status, retryable = kind
    told = in_command_words(str(error_of(Problem(slug, title, status, "", retryable), publishing=publishing)))
    assert not SPEAKS_HTTP.search(told) and told.endswith(f"[{slug}]")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "there is no topic 'birds': create it with PUT /v1/topics/birds [topic-not-found, HTTP 404]",
            "there is no topic 'birds': create it with mq topic create birds [topic-not-found]",
        ),
        (
            "topic 'birds' exists, and the request wants a new one (If-None-Match: *) [topic-exists, HTTP 412]",
            "topic 'birds' exists: leave out --new to change its settings [topic-exists]",
        ),
        (
            "http://127.0.0.1:9 answered GET /v1/topics with 404 Not Found and no problem document: is a BraidMQ "
            "broker listening there?",
            "http://127.0.0.1:9 answered with 404 Not Found: is a BraidMQ broker listening there?",
        ),
        ("unknown parameter 'kye': did you mean 'key'?", "this broker has no option 'kye': did you mean 'key'?"),
        ("value 'PUT ME DOWN' is too long", "value 'PUT ME DOWN' is too long"),
    ],
)
def test_what_to_do_is_told_in_commands(text: str, words: str) -> None:
    assert in_command_words(text) == words
