"""Options about brokers count before the command and behind it."""

import os
from pathlib import Path

import pytest

from mq.cli.context_file import Connection, Contexts, contexts_path, write_contexts
from mq.cli.failures import CommandFailed
from mq.cli.main import run

VARIABLES = ("URL", "TOKEN", "TOKEN_FILE", "CA", "CLIENT_CERT", "CLIENT_KEY", "CONTEXT")
LISTING = ["topic", "list"]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, str]]:
    """What commands would ask a broker with. There is a context in use, and another one."""
    for name in VARIABLES:
        # Set first: so what a command makes of it is undone as well.
        monkeypatch.setenv(f"BRAIDMQ_{name}", "")
        monkeypatch.delenv(f"BRAIDMQ_{name}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    known = {"one": Connection("https://a,https://b", "/one.token", "/one.pem"), "two": Connection("https://c", "/2")}
    write_contexts(contexts_path(), Contexts(known, current="one"))
    found: list[dict[str, str]] = []

    def asked(url: str, *_: object, **__: object) -> None:
        of_command = {name: os.environ.get(f"BRAIDMQ_{name}", "") for name in VARIABLES if name != "CONTEXT"}
        found.append({**{name: value for name, value in of_command.items() if value}, "URL": url})
        raise CommandFailed("asked")

    monkeypatch.setattr("mq.cli.topics.topic.with_client", asked)
    return found


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ([], {"URL": "https://a,https://b", "TOKEN_FILE": "/one.token", "CA": "/one.pem"}),
        (["--url", "https://b"], {"URL": "https://b", "TOKEN_FILE": "/one.token", "CA": "/one.pem"}),
        (["--url", "https://x"], {"URL": "https://x"}),
        (["--context", "two"], {"URL": "https://c", "TOKEN_FILE": "/2"}),
        (["--context", "two", "--url", "https://x", "--ca", "/x"], {"URL": "https://x", "CA": "/x"}),
        (
            ["--token-file", "/t", "--ca", "/c"],
            {"URL": "https://a,https://b", "TOKEN_FILE": "/t", "CA": "/c"},
        ),
        (
            ["--context", "two", "--client-cert", "/c", "--client-key", "/k"],
            {"URL": "https://c", "TOKEN_FILE": "/2", "CLIENT_CERT": "/c", "CLIENT_KEY": "/k"},
        ),
        (["--context", "two", "--token-file", "/t"], {"URL": "https://c", "TOKEN_FILE": "/t"}),
    ],
)
@pytest.mark.parametrize("place", ["before", "behind"])
def test_it_does_not_matter_where_they_stand(
    place: str, given: list[str], used: dict[str, str], seen: list[dict[str, str]]
) -> None:
    assert run([*given, *LISTING] if place == "before" else [*LISTING, *given]) == 1
    assert seen == [used]


@pytest.mark.parametrize(
    ("before", "behind", "used"),
    [
        (["--context", "two"], ["--ca", "/x"], {"URL": "https://c", "TOKEN_FILE": "/2", "CA": "/x"}),
        (["--ca", "/x"], ["--context", "two"], {"URL": "https://c", "TOKEN_FILE": "/2", "CA": "/x"}),
        (
            ["--context", "two"],
            ["--context", "one"],
            {"URL": "https://a,https://b", "TOKEN_FILE": "/one.token", "CA": "/one.pem"},
        ),
        (
            ["--url", "https://x", "--token-file", "/t"],
            ["--url", "https://y"],
            {"URL": "https://y", "TOKEN_FILE": "/t"},
        ),
    ],
)
def test_those_behind_come_first(
    before: list[str], behind: list[str], used: dict[str, str], seen: list[dict[str, str]]
) -> None:
    assert run([*before, *LISTING, *behind]) == 1
    assert seen == [used]


def test_a_token_file_takes_the_place_of_a_token(seen: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDMQ_TOKEN", "secret")
    assert run([*LISTING, "--token-file", "/t"]) == 1
    assert "TOKEN" not in seen[0] and seen[0]["TOKEN_FILE"] == "/t"


@pytest.mark.parametrize("arguments", [["--context", "tow", *LISTING], [*LISTING, "--context", "tow"]])
def test_a_context_that_is_not_there_is_told(
    arguments: list[str], seen: list[dict[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 1
    assert "did you mean 'two'?" in capfd.readouterr().err and seen == []


def test_a_key_without_a_certificate_is_told_by_its_option(
    seen: list[dict[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["group", "list", "t", "--client-key", __file__, "--url", "https://x"]) == 1
    assert "(--client-key or BRAIDMQ_CLIENT_KEY) is of no use without its certificate" in capfd.readouterr().err
