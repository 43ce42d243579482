"""What `mq local` prints, and what it refuses."""

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from filer.clock import ManualClock
from mq.cli.main import run
from mq.cli.server.local import _facts, _hints
from mq.local.cluster import LocalCluster, LocalSettings, StoreKind

STORES: list[StoreKind] = ["directory", "s3"]


@pytest.fixture(params=STORES)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """Two brokers as if they ran."""
    monkeypatch.setattr("mq.local.zookeeper._java", lambda: "java")
    monkeypatch.setattr("mq.local.zookeeper._classpath", lambda: "jars/*")
    made = LocalCluster(LocalSettings(tmp_path / "a folder", brokers=2, store=request.param), ManualClock())
    made.s3_endpoint = "http://127.0.0.1:9" if made.s3 is not None else ""
    made.zookeepers = []
    made.brokers = [
        SimpleNamespace(name=f"broker-{number}", url=f"http://127.0.0.1:{number}", pid=number, log=tmp_path)  # type: ignore[misc]
        for number in (1, 2)
    ]
    if made.s3 is not None:
        made.s3 = SimpleNamespace(name="s3", pid=3, log=tmp_path)  # type: ignore[assignment]
    return made


def test_the_commands_it_prints_are_commands(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> None:
    commands = [shlex.split(line) for line in _hints(cluster) if line.startswith("  ")]
    assert len(commands) == 8
    # The broker that it has drained is the one that it has killed: what is drained would move nothing then.
    lines = [" ".join(command) for command in commands]
    drained, undrained, killed = (
        next(number for number, line in enumerate(lines) if line.startswith(start))
        for start in ("mq cluster drain", "mq cluster undrain", "kill")
    )
    assert drained < undrained < killed
    for command in commands:
        words = [word for word in command if not word.startswith("AWS_")]
        if words[0] == "kill":
            assert words[1:] == ["-9", "2"]
            continue
        assert words[0] == "mq" and run([*words[1:], "--help"]) == 0, words
    assert capfd.readouterr().err == ""


def test_the_command_for_another_broker_names_all_that_it_shares(cluster: LocalCluster) -> None:
    facts = _facts(cluster)
    serve = facts["serve"]
    assert isinstance(serve, list) and serve[:3] == ["serve", "--broker", "broker-3"]
    assert serve[serve.index("--store") + 1] == cluster.store == facts["store"]
    assert ("--s3-endpoint" in serve) is bool(facts["environment"]) is (cluster.s3 is not None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--brokers", "0"], "--brokers"),
        (["--zookeepers", "2"], "--zookeepers"),
        (["--store", "gs"], "--store"),
        (["--session-timeout", "0.5"], "--session-timeout"),
        (["--session-timeout", "nan"], "--session-timeout"),
        (["--port", "65001"], "--port"),
        (["--data", __file__], "--data"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["local", *arguments]) == 2
    err = capfd.readouterr().err
    assert message in err and err.count("\n") == 1


def test_without_an_s3_server_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mq.local.zookeeper._java", lambda: "java")
    monkeypatch.setattr("mq.local.zookeeper._classpath", lambda: "jars/*")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(["local", "--store", "s3", "--data", str(tmp_path)]) == 1
    assert "pip install 'braidmq[s3-server]'" in capfd.readouterr().err
