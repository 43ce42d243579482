import pytest

from mq.base.read_settings import flag_of, variable_of
from mq.base.settings import BrokerSettings
from mq.base.version import VERSION
from mq.cli.main import run


def command_line(parameter: object) -> str | None:
    """Names a case by its arguments."""
    return f"mq {' '.join(parameter)}" if isinstance(parameter, list) else None


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr; nothing may be on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("mq: ") and err.endswith("\n") and err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topc"], "No such command 'topc'. Did you mean 'topic'?"),
        (["group", "show"], "No such command 'show': mq group has create, list, describe, reset, redrive, delete"),
        (["topic", "create"], "Missing argument 'TOPIC'"),
        (["serve", "--prot", "1"], "No such option: --prot"),
        (["topic", "create", "t", "--set", "x"], "'x' does not have the form key=value"),
        (["topic", "create", "t", "--set", "a=1", "--set", "a.b=1"], "inside a value that is not an object"),
        (["topic", "create", "t", "--segments", "none"], "--segments"),
        (["topic", "create", "t", "--key-type", "text"], "'binary', 'string'"),
        (["publish", "t", "x", "--file", "y"], "leave out --file"),
        (["publish", "t", "x", "--header", "y"], "NAME=VALUE"),
        (["publish", "t", "--key", "k", "--key-field", "f"], "--key or --key-field"),
        (["publish", "t", "--upload", "--format", "csv"], "--upload"),
        (["publish", "t", "--upload", "x"], "--upload"),
        (["subscribe", "t", "--from", "latest", "--marker", "m"], "only one of --from, --marker and --tail"),
        (["subscribe", "t", "--from", "5m", "--tail", "1"], "only one of --from, --marker and --tail"),
        (["subscribe", "t", "--from", "yesterday"], "earliest, latest, an RFC 3339 time such as"),
        (["subscribe", "t", "--to", "latest"], "how long ago, such as 30s, 5m, 2h or 1d, not 'latest'"),
        (["subscribe", "t", "--format", "parquet"], "belong together"),
        (["subscribe", "t", "--output", "x"], "belong together"),
        (["subscribe", "t", "--format", "parquet", "--output", "x"], "needs an end"),
        (["files", "ls", "t", "--from", "5"], "an RFC 3339 time"),
        (["topic", "list", "--timeout", "3h"], "'--timeout': it must be from 0.1s to 30m, not '3h'"),
        (["bench", "--size", "1M"], "powers of 1024"),
        (["topic", "create", "t", "--retention-bytes", "1M"], "powers of 1024"),
        (["subscribe", "t", "--format", "xml"], "--format"),
        (["bench", "--messages", "0"], "--messages"),
    ],
    ids=command_line,
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert message in said(capsys)


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topic", "create", "../x"], "'../x' cannot name a topic"),
        (["topic", "list", "--url", "ftp://x"], "'ftp://x' is not a broker's address"),
        (["serve", "--port", "70000"], "--port: it must be at most 65535"),
        (["serve", "--config", "/nowhere/b.toml"], "/nowhere/b.toml: No such file"),
        (["serve", "--port", "0", "--store", "gs://b"], "s3://bucket/prefix"),
    ],
    ids=command_line,
)
def test_what_cannot_work_is_one_line_and_exit_code_1(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 1
    assert message in said(capsys)


def test_debug_shows_where_an_error_came_from() -> None:
    with pytest.raises(Exception, match="cannot name a topic"):
        run(["--debug", "topic", "create", "../x"])
    with pytest.raises(Exception, match="no connection") as failure:
        run(["--debug", "topic", "list", "--url", "http://127.0.0.1:9"])
    assert "braidmq/transport" in str(failure.getrepr())


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"mq {VERSION}\n"


@pytest.mark.parametrize("arguments", [[], ["topic"], ["files"]], ids=command_line)
def test_a_group_alone_shows_its_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert "Usage: mq" in out and err == ""


def test_serve_has_every_setting_with_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["serve", "--help"]) == 0
    told = capsys.readouterr().out
    for field, info in BrokerSettings.model_fields.items():
        assert f"{flag_of(field)} " in told and variable_of(field) in told and str(info.description) in told


def test_an_error_of_our_own_making_is_told_as_such(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("mq.cli.topics.topic.with_client", broken)
    assert run(["topic", "list"]) == 1
    assert "internal error, please report it: ZeroDivisionError: division by zero" in said(capsys)


def test_an_interrupted_command_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mq.cli.topics.topic.with_client", interrupted)
    assert run(["topic", "list"]) == 130
    assert capsys.readouterr() == ("", "")
