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
    file = Path(signing[1]).with_name("shop.token")
    file.write_text(f"{token}\n")
    assert mq_json("token", "inspect", str(file)) == mq_json("token", "inspect", token)
    assert "is a folder: name the file that has the token" in mq_fails("token", "inspect", str(file.parent))
    assert "there is no file" in mq_fails("token", "inspect", str(file.with_name("nothing")))
    Path(signing[1]).chmod(0o644)
    assert "others may read" in mq_fails("token", "create", "shop", *signing, "--grant", "topic:a:read")
    Path(signing[1]).chmod(0o600)
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
    assert "a static token says nothing itself" in mq_fails("token", "inspect", "braidmq_hello")
    assert "--cluster: the name of a cluster" in mq_fails(*create, files[1], "--cluster", "x y")
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
        check_policy(mq, mq_fails, files, tmp_path)


def check_policy(mq: Mq, mq_fails: Mq, files: tuple[str, ...], tmp_path: Path) -> None:
    """What `mq policy` shows can be changed and applied; `mq token revoke` ends one token, or all of a principal."""
    ada, policy, shop = ("--token-file", str(tmp_path / "ada")), tmp_path / "policy.toml", tmp_path / "shop"
    shop.write_text(mq("token", "create", "shop", *files[:2], "--grant", "topic:orders:read"))
    as_shop = ("--token-file", str(shop))
    assert mq(*ada, "policy", "show") == "version = 0\n"
    policy.write_text('[[grants]]\nprincipal = "sh*"\ngrants = ["topic:orders:publish"]\n')
    assert mq(*ada, "policy", "apply", str(policy)) == (
        "+ grants: principal sh*, grants topic:orders:publish\npolicy version 1 is in force\n"
    )
    mq(*as_shop, "publish", "orders", "again")
    assert "'shop' may not manage the cluster" in mq_fails(*as_shop, "policy", "show")
    told = mq(*ada, "token", "revoke", str(shop))
    assert "is refused, until it ends at" in told and "policy version 2" in told
    assert "the token is revoked" in mq_fails(*as_shop, "publish", "orders", "again")
    shop.write_text(mq("token", "create", "shop", *files[:2], "--grant", "topic:orders:read"))
    mq(*as_shop, "publish", "orders", "again")
    assert "tokens of shop from before" in mq(*ada, "token", "revoke", "--principal", "shop")
    assert "are revoked: get a new one" in mq_fails(*as_shop, "publish", "orders", "again")
    shop.write_text(mq("token", "create", "shop", *files[:2], "--grant", "topic:orders:read"))
    mq(*as_shop, "publish", "orders", "again")
    # What is shown can be applied, and once only: the version that it has is gone by then.
    policy.write_text(shown := mq(*ada, "policy", "show"))
    assert "[[revoked_tokens]]" in shown and "[[revoked_principals]]" in shown
    assert mq(*ada, "policy", "apply", str(policy)).startswith("nothing is other than before\n")
    assert "mq policy show shows the newer one" in mq_fails(*ada, "policy", "apply", str(policy))
    policy.write_text('{"grants": [], "revoked_principals": []}')
    lines = json.loads(mq(*ada, "policy", "apply", str(policy), "--json"))["changes"]
    assert [line.partition(":")[0] for line in lines] == ["- grants", "- revoked_principals"]
    for text, why in (
        ("x", "it is neither TOML nor JSON"),
        ("[[grant]]", "unknown section 'grant': did you mean 'grants'?"),
        ('[[quotas]]\nprincipal = "a"\nstream = 1', "unknown field 'stream': did you mean 'streams'?"),
    ):
        policy.write_text(text)
        assert why in mq_fails(*ada, "policy", "apply", str(policy))
    told = mq(*ada, "token", "revoke", "--id", "g1")
    assert (
        "token g1 is refused" in told and "if there is one: no broker keeps a list; tokens of the cluster's own" in told
    )
    for given, why in (
        ((), "name what to revoke"),
        (("--id", "a", "--principal", "b"), "name what to revoke"),
        ((str(tmp_path / "grafana"),), "taken out of --static-tokens"),
        ((str(tmp_path / "nothing"),), "No such file"),
        (("--id", "two words"), "is no id of a token"),
        (("--id", ""), "is no id of a token"),
        (("--id", "x" * 201), "is no id of a token"),
        (("--id", shop.read_text().strip()), "that is a token, and not its id"),
    ):
        assert why in mq_fails(*ada, "token", "revoke", *given)


def test_a_broker_that_could_check_no_token_does_not_start(tmp_path: Path) -> None:
    asking = ["--authorizer", "tokens", "--token-keys", "nothing.json"]
    command = [sys.executable, "-m", "mq.cli.main", "serve", "--port", "0", "--data", str(tmp_path), *asking]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "mq: nothing.json (--token-keys): No such file or directory\n")
