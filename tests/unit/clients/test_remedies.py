"""What to do about an error is said for HTTP by the broker's front, and in commands by the command line."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import orjson
import pytest

from braidmq.errors import OutcomeUnknown, Problem, error_of
from braidmq.publish.row_names import OF_REQUEST, rename_row, row_of_table
from braidmq.remedies import COMMANDS, in_commands
from braidmq.transport.problems import told_problem
from filer.errors import BraidError, InvalidInput, Remedy, RemedyKind
from mq.base.errors import BodyTooLarge, TopicExists, TopicNotFound
from mq.cli.failures import CommandFailed
from mq.http.problems import _KINDS, problem_of
from mq.http.remedies import WORDS

ROOT = Path(__file__).parents[3]
FOLDERS = ("filer", "groups", "leader", "mq", "clients/braidmq", "pipeline")
FRONTS = ("mq/http/", "mq/process/connections/", "mq/cli/")
SPEAKS_HTTP = re.compile(r'\b(GET|PUT|POST|DELETE|HEAD|PATCH)\b|/v1\b|\bHTTP \d|"\w+": (true|false)')


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of a module that are sentences; docstrings are none."""
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documented and " " in str(node.value):
            yield node.lineno, str(node.value)


def test_only_fronts_speak_http() -> None:
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    found = {
        f"{name}:{line}": text
        for path in paths
        if not (name := str(path.relative_to(ROOT))).startswith(FRONTS)
        for line, text in sentences(ast.parse(path.read_text("utf-8")))
        if SPEAKS_HTTP.search(text)
    }
    assert found == {}


@pytest.mark.parametrize("kind", get_args(RemedyKind))
def test_each_remedy_is_said_by_both_with_the_same_names(kind: RemedyKind) -> None:
    names = {"topic": "a", "topic_group": "b", "group": "c", "message": "0-1"}
    assert WORDS[kind].format(**names) != COMMANDS[kind].format(**names)
    assert not SPEAKS_HTTP.search(COMMANDS[kind].format(**names))
    assert set(re.findall(r"{\w+}", COMMANDS[kind])) <= set(re.findall(r"{\w+}", WORDS[kind]))


def of_broker(error: BraidError) -> BraidError:
    return told_problem(orjson.loads(problem_of(error).body()))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TopicNotFound("birds"), "there is no topic 'birds': create it with mq topic create birds [topic-not-found]"),
        (
            TopicExists("topic 'birds' exists", Remedy("configure-topic")),
            "topic 'birds' exists: leave out --new to change its settings [topic-exists]",
        ),
        (
            BodyTooLarge("the body is larger than 9 bytes", 9, "birds", Remedy("upload", topic="birds")),
            "the body is larger than 9 bytes: publish a large file by reference, with mq publish --upload "
            "[body-too-large]",
        ),
    ],
)
def test_what_to_do_is_told_in_commands(error: BraidError, words: str) -> None:
    refused = of_broker(error)
    assert in_commands(refused) == words
    unknown = OutcomeUnknown(f"the last failure: {refused}")
    unknown.__cause__ = refused
    failed = CommandFailed(f"{unknown}; 3 are stored")
    failed.__cause__ = unknown
    assert in_commands(failed) == f"the last failure: {words}; 3 are stored"


def test_a_row_has_the_number_that_the_caller_counts() -> None:
    told = "row 1 of the request: 'x' was not issued for topic 'birds'"
    refused = told_problem(orjson.loads(problem_of(InvalidInput(told, Remedy("get-upload-id", topic="birds"))).body()))
    rename_row(refused, OF_REQUEST, row_of_table, before=4)
    assert str(refused).startswith("row 5 of the table: 'x' was not issued for topic 'birds': get an id from POST /v1/")
    assert in_commands(refused).startswith("row 5 of the table: 'x' was not issued for topic 'birds': publish the file")


@pytest.mark.parametrize("remedy", [None, "no object", {"kind": "of tomorrow", "fault": "x"}, {"kind": "create-topic"}])
def test_brokers_of_other_versions_are_told_by_their_detail(remedy: object) -> None:
    detail = "there is no topic 'birds': create it with PUT /v1/topics/birds"
    extras = {} if remedy is None else {"remedy": remedy}
    refused = error_of(Problem("topic-not-found", "No topic", 404, detail, False, extras), publishing=False)
    assert in_commands(refused) == f"{detail} [topic-not-found]"


def test_a_request_that_an_older_broker_does_not_know() -> None:
    problem = Problem("not-found", "There is nothing here", 404, "no such path: /v1/sql; see /docs", False)
    refused = error_of(problem, publishing=False)
    assert in_commands(refused).endswith("it may be of an older version [not-found]")


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: str(kind[1]))
@pytest.mark.parametrize("publishing", [False, True], ids=["reading", "publishing"])
def test_every_kind_of_problem_is_told_without_http(kind: tuple[object, str, str, int, bool], publishing: bool) -> None:
    _, slug, title, status, retryable = kind
    told = in_commands(error_of(Problem(slug, title, status, "", retryable), publishing=publishing))
    assert not SPEAKS_HTTP.search(told) and told.endswith(f"[{slug}]")
