import json
import os
from pathlib import Path

import pytest

from mq.base.settings import BrokerSettings
from mq.cli.main import run


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("BRAIDMQ_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "braid.toml"
    path.write_text('grace = "2h"\nport = 9000\ns3_endpoint = "http://me:hidden@s3:9000"\n')
    return str(path)


def test_each_setting_is_shown_with_its_value_and_origin(
    file: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIDMQ_FRONT_STORE_BYTES", "256MB")
    monkeypatch.setenv("BRAIDMQ_CONFIG", file)
    assert run(["config", "show", "--port", "1"]) == 0
    out, err = capfd.readouterr()
    rows = {line.split()[0]: line.split(maxsplit=1)[-1].split() for line in out.splitlines()[2:]}
    assert err == "" and list(rows) == list(BrokerSettings.model_fields)
    assert rows["port"] == ["1", "command", "line:", "--port"]
    assert rows["front_store_bytes"] == ["256MB", "environment:", "BRAIDMQ_FRONT_STORE_BYTES"]
    assert rows["grace"] == ["2h", "file:", "grace", "in", file]
    assert rows["host"] == ["127.0.0.1", "default"]


@pytest.mark.parametrize("option", [["--format", "json"], ["--json"]], ids=" ".join)
def test_as_json(option: list[str], file: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--config", file, "--flush-bytes", "1MiB", *option]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["flush_bytes"] == {"value": 1_048_576, "layer": "command line", "name": "--flush-bytes"}
    assert shown["port"] == {"value": 9000, "layer": "file", "name": f"port in {file}"}
    assert shown["store"] == {"value": None, "layer": "default", "name": None}
    assert list(shown) == list(BrokerSettings.model_fields)


@pytest.mark.parametrize("option", [[], ["--json"]], ids=["table", "json"])
def test_passwords_are_masked(option: list[str], file: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--config", file, "--advertise", "http://b:1", *option]) == 0
    out = capfd.readouterr().out
    assert "http://me:***@s3:9000" in out and "hidden" not in out and "http://b:1" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prot", "1"], "No such option: --prot"),
        (["--port", "70000"], "--port: it must be at most 65535"),
        (["--session-timeout", "5s"], "without --zookeeper"),
        (["--config", "/nowhere/b.toml"], "/nowhere/b.toml: No such file"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_it_refuses_what_serve_refuses(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = run(["config", "show", *arguments])
    told = capfd.readouterr().err
    assert message in told
    assert run(["serve", *arguments]) == code != 0
    assert capfd.readouterr().err == told


def test_unknown_keys_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.toml").write_text("grase = 5\n")
    assert run(["config", "show", "--config", str(tmp_path / "b.toml")]) == 1
    assert "unknown setting 'grase': did you mean 'grace'?" in capfd.readouterr().err
