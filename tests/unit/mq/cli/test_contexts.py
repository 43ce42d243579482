"""Which variables a context changes, and what its file has."""

from pathlib import Path

import pytest

from filer.errors import InvalidInput
from mq.cli.context_file import Connection, Contexts, checked_url, contexts_path, read_contexts, write_contexts
from mq.cli.context_in_force import Chosen, ContextInForce, variables_of

PRODUCTION = Connection("https://b:8080", "/p.token", "/ca.pem", "/me.pem", "/me.key")
ALL = {
    "BRAIDMQ_URL": "https://b:8080",
    "BRAIDMQ_TOKEN_FILE": "/p.token",
    "BRAIDMQ_CA": "/ca.pem",
    "BRAIDMQ_CLIENT_CERT": "/me.pem",
    "BRAIDMQ_CLIENT_KEY": "/me.key",
}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in ALL.items() if name not in names}


@pytest.mark.parametrize(
    ("environment", "changed"),
    [
        ({}, ALL),
        ({"BRAIDMQ_URL": "", "BRAIDMQ_TOKEN": ""}, ALL),
        ({"BRAIDMQ_URL": "https://b:8080"}, without("BRAIDMQ_URL")),
        # Its token is for its own brokers.
        ({"BRAIDMQ_URL": "https://other:8080"}, {}),
        ({"BRAIDMQ_TOKEN": "t"}, without("BRAIDMQ_TOKEN_FILE")),
        ({"BRAIDMQ_TOKEN_FILE": "/t"}, without("BRAIDMQ_TOKEN_FILE")),
        ({"BRAIDMQ_CA": "/other.pem"}, without("BRAIDMQ_CA")),
        # A key belongs to its certificate.
        ({"BRAIDMQ_CLIENT_CERT": "/x.pem"}, without("BRAIDMQ_CLIENT_CERT", "BRAIDMQ_CLIENT_KEY")),
    ],
)
def test_variables_come_before_a_context(environment: dict[str, str], changed: dict[str, str]) -> None:
    assert variables_of(Chosen("p", PRODUCTION, by_option=False), environment) == changed


def test_a_context_of_the_command_line_comes_before_all_variables() -> None:
    chosen = Chosen("p", Connection("http://b"), by_option=True)
    environment = {"BRAIDMQ_URL": "http://a", "BRAIDMQ_TOKEN": "t", "BRAIDMQ_CA": "/a.pem"}
    gone = {"BRAIDMQ_TOKEN", "BRAIDMQ_TOKEN_FILE", "BRAIDMQ_CA", "BRAIDMQ_CLIENT_CERT", "BRAIDMQ_CLIENT_KEY"}
    assert variables_of(chosen, environment) == {"BRAIDMQ_URL": "http://b", **dict.fromkeys(gone)}


@pytest.fixture
def folder(tmp_path: Path) -> dict[str, str]:
    """An environment with a file of contexts."""
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    known = {"p": PRODUCTION, "q": Connection("http://q")}
    write_contexts(contexts_path(environment), Contexts(known, current="p"))
    return environment


def test_another_address_on_the_command_line_gets_nothing_of_it(folder: dict[str, str]) -> None:
    for option, before in ((None, {}), ("p", {"BRAIDMQ_TOKEN": "t", "BRAIDMQ_URL": "http://a"})):
        environment = {**folder, **before}
        in_force = ContextInForce()
        in_force.apply(option, environment)
        assert {name: environment.get(name) for name in ALL} == ALL
        in_force.leave_unless_for("https://b:8080", environment)
        in_force.leave_unless_for(None, environment)
        assert environment["BRAIDMQ_TOKEN_FILE"] == "/p.token" and "BRAIDMQ_TOKEN" not in environment
        in_force.leave_unless_for("http://a", environment)
        assert environment == {**folder, **before}


def test_a_token_of_the_command_line_stays(folder: dict[str, str]) -> None:
    environment = {**folder, "BRAIDMQ_TOKEN_FILE": "/mine"}
    in_force = ContextInForce()
    in_force.apply("p", environment, given=["BRAIDMQ_TOKEN_FILE"])
    assert environment["BRAIDMQ_TOKEN_FILE"] == "/mine" and environment["BRAIDMQ_CA"] == "/ca.pem"


def test_which_one_is_chosen(folder: dict[str, str]) -> None:
    for option, variable, url in ((None, None, "https://b:8080"), (None, "q", "http://q"), ("q", "p", "http://q")):
        environment = {**folder, **({} if variable is None else {"BRAIDMQ_CONTEXT": variable})}
        ContextInForce().apply(option, environment)
        assert environment["BRAIDMQ_URL"] == url
    for environment, option in (({**folder, "BRAIDMQ_CONTEXT": "pp"}, None), (folder, "pp")):
        with pytest.raises(InvalidInput, match="unknown context 'pp': did you mean 'p'"):
            ContextInForce().apply(option, dict(environment))


def test_without_a_file_nothing_changes(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    ContextInForce().apply(None, environment)
    assert list(environment) == ["XDG_CONFIG_HOME"]
    with pytest.raises(InvalidInput, match="no context 'p', and no other one: mq context add"):
        ContextInForce().apply("p", environment)


def test_the_file_is_read_as_it_was_written_and_is_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "contexts.toml"
    strange = Connection('http://b/"\\x', token_file='/a\n\t"\\\x7fé𝄞/b')
    contexts = Contexts().with_one("p.eu", PRODUCTION).with_one("q", strange).using("q")
    write_contexts(path, contexts)
    assert read_contexts(path) == contexts
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert [*path.parent.iterdir()] == [path]
    write_contexts(path, read_contexts(path).without("q"))
    assert read_contexts(path) == Contexts({"p.eu": PRODUCTION})
    assert read_contexts(tmp_path / "nothing") == Contexts()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("curent = 'a'", "unknown setting 'curent': did you mean 'current'"),
        ("current = 3", "it needs current = "),
        ("[context.a]", "context 'a' has no url"),
        ("[context.a]\nurl = 3", "context 'a' has to be a table of texts"),
        (
            "[context.a]\nurl = 'http://b'\ntoken = 'secret'",
            "context 'a': unknown setting 'token': did you mean 'token_f",
        ),
        ("[context.'a b']\nurl = 'http://b'", "the name of a context has 1 to 100"),
        ("[context", "it is no TOML"),
        ("\xff", "it is no TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput) as refused:
        read_contexts(path)
    assert str(refused.value).startswith(f"{path}: {why}")


@pytest.mark.parametrize("url", ["http://a", "https://a:1/x,http://b"])
def test_an_address_that_is_kept(url: str) -> None:
    assert checked_url(url) == url


@pytest.mark.parametrize(
    ("url", "why"),
    [("a:8080", "an address has the form"), ("http://", "an address"), ("https://ada:secret@b", "a password in it")],
)
def test_an_address_that_is_not_kept(url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as refused:
        checked_url(url)
    assert "secret" not in str(refused.value)


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert contexts_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/braidmq/contexts.toml")
    for other in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert contexts_path(other) == Path("/home/ada/.config/braidmq/contexts.toml")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_home_that_one_may_not_enter_has_no_contexts(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of root, which programs that change the user leave in the environment."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr("os.access", lambda *_: is_there)
    if is_there:
        with pytest.raises(PermissionError):
            read_contexts(Path("/root/.config/braidmq/contexts.toml"))
    else:
        assert read_contexts(Path("/root/.config/braidmq/contexts.toml")) == Contexts()
