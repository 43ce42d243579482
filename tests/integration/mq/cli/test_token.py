"""`mq token`, and what a broker makes of it."""

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker.broker_process import BrokerProcess

Mq = Callable[..., str]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    return "--signing-keys", str(tmp_path / "signing.json"), "--public-keys", str(tmp_path / "public.json")


def test_a_key_signs_until_it_is_dropped(
    mq: Mq, mq_json: Callable[..., Any], mq_fails: Mq, files: tuple[str, ...]
) -> None:
    signing, public = files[:2], files[2:]
    first = mq_json("token", "rotate-key", *files)["key"]
    token = mq(
        "token", "create", "shop", *signing, "--topics", "orders-*", "--allow", "read,publish", "--ttl", "1h"
    ).strip()
    told = mq_json("token", "inspect", token, *public)
    assert (told["sub"], told["scope"], told["key"]) == ("shop", "braidmq:topic:orders-*:read,publish", first)
    assert told["exp"] - told["iat"] == 3600 and told["checked"]
    second = mq_json("token", "rotate-key", *files)
    assert second["kept"] == [first] and mq_json("token", "inspect", token, *public)["checked"]
    assert json.loads(Path(public[1]).read_bytes()) == json.loads(mq("token", "public-keys", *signing))
    assert '"d"' not in Path(public[1]).read_text()
    third = mq_json("token", "rotate-key", *files)
    assert (third["kept"], third["dropped"]) == ([second["key"]], [first])
    assert "a key that is not known here" in mq_fails("token", "inspect", token, *public)
    assert mq_json("token", "inspect", token)["checked"] is False
    assert stat.S_IMODE(Path(signing[1]).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--topics", "orders-*"], "--topics and --allow belong together"),
        (["--groups", "g", "--allow", "read"], "--topics and --allow belong together"),
        ([], "a token without a grant allows nothing"),
        (["--topics", "a*b", "--allow", "read"], "is no pattern"),
        (["--grant", "topic:a:raed"], "did you mean 'read'?"),
        (["--grant", "cluster:observe", "--cluster", "x" * 9000], "is too long"),
    ],
)
def test_what_makes_no_token_is_refused(
    mq: Mq, mq_fails: Mq, files: tuple[str, ...], arguments: list[str], why: str
) -> None:
    mq("token", "rotate-key", *files)
    assert why in mq_fails("token", "create", "shop", *files[:2], *arguments)


def test_files_that_are_no_keys_are_named(mq: Mq, mq_fails: Mq, files: tuple[str, ...], tmp_path: Path) -> None:
    mq("token", "rotate-key", *files)
    create = ["token", "create", "shop", "--grant", "cluster:observe", "--signing-keys"]
    assert "has no private keys" in mq_fails(*create, files[3])
    assert "No such file" in mq_fails(*create, str(tmp_path / "nothing.json"))
    (tmp_path / "broken.json").write_text("{")
    assert "is no JSON" in mq_fails(*create, str(tmp_path / "broken.json"))
    assert "no JSON Web Token" in mq_fails("token", "inspect", "hello")
    assert "to be 'other'" in mq_fails(
        "token", "inspect", mq(*create, files[1]).strip(), "--public-keys", files[3], "--cluster", "other"
    )


def test_a_broker_serves_who_has_a_token(
    mq: Mq, files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mq_fails: Mq
) -> None:
    mq("token", "rotate-key", *files)
    static = str(tmp_path / "static.toml")
    (tmp_path / "grafana").write_text(
        mq("token", "create-static", "grafana", "--static-tokens", static, "--grant", "cluster:observe")
    )
    everything = ["--grant", "topic:*:*", "--grant", "cluster:*"]
    (tmp_path / "ada").write_text(mq("token", "create", "ada", *files[:2], *everything))
    asking = ["--authorizer", "tokens", "--token-keys", files[3], "--static-tokens", static]
    with BrokerProcess(data=tmp_path / "data", args=asking) as broker:
        monkeypatch.setenv("BRAIDMQ_URL", broker.url)
        ada, grafana = ("--token-file", str(tmp_path / "ada")), ("--token-file", str(tmp_path / "grafana"))
        assert "this broker asks for a token" in mq_fails("topic", "list")
        mq(*ada, "topic", "create", "orders")
        mq(*ada, "publish", "orders", "hello")
        assert mq(*ada, "subscribe", "orders", "--until-end") == "hello\n"
        assert "broker" in mq(*grafana, "cluster", "status")
        assert "'grafana' may not observe topic 'orders'" in mq_fails(*grafana, "subscribe", "orders", "--until-end")
        assert "cannot be read" in mq_fails("--token-file", str(tmp_path / "nothing"), "topic", "list")


def test_a_broker_that_could_check_no_token_does_not_start(tmp_path: Path) -> None:
    asking = ["--authorizer", "tokens", "--token-keys", "nothing.json"]
    command = [sys.executable, "-m", "mq.cli.main", "serve", "--port", "0", "--data", str(tmp_path), *asking]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "mq: nothing.json (--token-keys): No such file or directory\n")
