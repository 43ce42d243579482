"""`mq context`: commands go by names for brokers, and a context's token goes to its own brokers only."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mq.security.grants import parse_grants
from mq.security.static_tokens import added
from tests.support.broker.broker_process import BrokerProcess

Mq = Callable[..., str]
TOKEN = "braidmq_of-bob"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where contexts are kept during the test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_commands_go_by_the_context_in_use(
    broker: BrokerProcess, mq: Mq, mq_fails: Mq, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = folder / "bob.token"
    token.write_text(TOKEN)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("BRAIDMQ_URL")
    assert mq("context", "add", "away", "--url", "http://127.0.0.1:1", "--use") == "context away is added, and in use\n"
    assert "no connection to http://127.0.0.1:1" in mq_fails("topic", "list")
    assert mq("context", "add", "here", "--url", broker.url, "--token-file", "bob.token") == "context here is added\n"
    assert json.loads(mq("--context", "here", "topic", "list", "--json")) is not None
    assert "no connection to http://127.0.0.1:1" in mq_fails("topic", "list")
    assert mq("context", "use", "here") == "context here is in use\n"
    mq("topic", "list")
    listed = json.loads(mq("context", "list", "--json"))
    assert [(each["context"], each["in_use"]) for each in listed] == [("away", False), ("here", True)]
    assert listed[1]["token_file"] == str(token)
    monkeypatch.setenv("BRAIDMQ_CONTEXT", "away")
    assert "no connection to http://127.0.0.1:1" in mq_fails("topic", "list")
    assert mq("context", "show").splitlines()[0].split() == ["context", "away"]
    assert mq("--context", "here", "context", "show").splitlines()[0].split() == ["context", "here"]
    monkeypatch.setenv("BRAIDMQ_URL", broker.url)
    mq("topic", "list")
    monkeypatch.delenv("BRAIDMQ_URL")
    monkeypatch.delenv("BRAIDMQ_CONTEXT")
    assert mq("context", "remove", "here") == "context here is removed: no context is in use\n"
    assert token.exists()
    assert "no context is in use" in mq_fails("context", "show")


def test_a_token_goes_to_its_own_brokers_only(
    broker: BrokerProcess, mq: Mq, mq_fails: Mq, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BRAIDMQ_URL")
    (folder / "bob.token").write_text(TOKEN)
    (folder / "tokens.toml").write_text(added(b"", "bob", TOKEN, parse_grants(["topic:t:publish"]), None))
    with BrokerProcess(data=folder / "d", args=["--static-tokens", str(folder / "tokens.toml")]) as asking:
        # Where a token is sent, its bearer may do what it grants; without one, the user may do everything.
        mq("topic", "create", "t", "--url", asking.url)
        mq("context", "add", "bobs", "--url", asking.url, "--token-file", str(folder / "bob.token"), "--use")
        assert "'bob' may not manage topic 't'" in mq_fails("topic", "delete", "t", "--yes")
        mq("publish", "t", "x")
        # The same broker under another name counts as another one, and so do others.
        mq("topic", "list", "--url", broker.url)
        other_name = asking.url.replace("127.0.0.1", "localhost")
        mq("topic", "delete", "t", "--yes", "--url", other_name)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["add", "a b", "--url", "http://b"], "the name of a context has 1 to 100 of the characters"),
        (["add", "a", "--url", "https://ada:secret@b"], "an address with a name and a password in it is not kept"),
        (["add", "a", "--url", "http://b", "--ca", "nothing.pem"], "--ca: there is no file"),
        (["add", "a", "--url", "http://b", "--client-key", "k"], "--client-key is of no use without --client-cert"),
        (["use", "a"], "there is no context 'a'"),
        (["use"], "give the name of a context, or --none"),
        (["show", "a"], "there is no context 'a'"),
        (["remove", "a"], "there is no context 'a'"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(mq_fails: Mq, folder: Path, arguments: list[str], why: str) -> None:
    told = mq_fails("context", *arguments)
    assert why in told and "secret" not in told
    assert not (folder / "config").exists() or not [*(folder / "config" / "braidmq").iterdir()]
