import asyncio
import json
import shutil
import time
from pathlib import Path

import httpx
import pytest

from filer import keys
from filer.clock import SystemClock
from filer.keys import FileName
from filer.stores.local.local_store import LocalStore
from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess
from tests.support.broker.http_broker import http_broker
from tests.support.broker.topic_group_requests import make_shop, publish_to
from tests.support.topic.stored_topic import TOPIC, store_topic

WAIT_SECONDS = 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    asyncio.run(store_topic(root, sealed={0: [3, 2]}))
    return root


def test_a_sound_store(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--all", "--store", str(root)]) == 0
    assert run(["verify", TOPIC, "--store", f"file://{root}", "--json"]) == 0
    out, err = capfd.readouterr()
    table, answer = out.splitlines()
    assert (table, err) == ("6 objects are sound", "")
    assert json.loads(answer) == {"ok": 5, "unchecked": 0, "given_up": 0, "damaged": 0, "missing": 0, "objects": []}


def test_what_is_wrong_is_named_and_fails(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key = keys.segment_file(TOPIC, 0, FileName(3))
    (root / key).unlink()
    assert run(["verify", TOPIC, "--store", str(root)]) == 1
    assert run(["verify", TOPIC, "--store", str(root), "--json"]) == 1
    out, err = capfd.readouterr()
    assert f"{key}   missing   messages [3, 5) cannot be read without it" in out
    assert json.loads(out.splitlines()[-1])["objects"][0]["key"] == key
    assert err == "mq: 1 of 5 objects are damaged or missing\n" * 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name the topics to check, or give --all"),
        (["t", "--all"], "name the topics to check, or give --all"),
        (["none"], "there is no topic 'none' on this store"),
        (["a/b"], "'a/b' cannot name a topic"),
    ],
)
def test_wrong_input_is_one_line(
    root: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert run(["verify", *arguments, "--store", str(root)]) == 1
    assert told in capfd.readouterr().err


def test_a_member_of_a_topic_group_has_no_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """To find its record sound would say nothing of its messages."""

    async def make() -> None:
        store = LocalStore(tmp_path, clock=SystemClock())
        async with http_broker(store) as broker:
            await make_shop(broker)
            await publish_to(broker, "orders", "o")
            (await broker.client.put("/v1/topic-groups/gone", json={"topics": ["left"]})).raise_for_status()
            (await broker.client.delete("/v1/topic-groups/gone")).raise_for_status()

    asyncio.run(make())
    assert run(["verify", "orders", "--store", str(tmp_path)]) == 1
    assert "'orders' lie in the files of topic group 'shop': check that" in capfd.readouterr().err
    for name in ("shop", "--all", "left"):
        assert run(["verify", name, "--store", str(tmp_path)]) == 0


def test_records_of_members_are_checked_with_their_topic_group(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each is counted once, though it has a name of its own: here, and by a broker."""

    async def make() -> None:
        store = LocalStore(tmp_path, clock=SystemClock())
        async with http_broker(store) as broker:
            await make_shop(broker)
            await publish_to(broker, "orders", "o")

    def counts(*arguments: str) -> tuple[int, list[str]]:
        failed = run(["verify", *arguments, "--json"])
        told = json.loads(capfd.readouterr().out)
        assert bool(failed) == bool(told["objects"])
        wrong = told["damaged"] + told["missing"]
        assert wrong == len(told["objects"])
        return told["ok"], [each["key"] for each in told["objects"]]

    asyncio.run(make())
    store = ["--store", str(tmp_path)]
    sound, none = counts("shop", *store)
    assert none == []
    record = keys.topic("orders")
    (tmp_path / record).write_bytes(b"{")
    assert counts("shop", *store) == (sound - 1, [record])
    with BrokerProcess(data=tmp_path) as broker:
        assert counts("--all", "--url", broker.url)[1] == [record]
    assert counts("--all", *store)[1] == [record]


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--all", "--store", str(tmp_path / "none")]) == 1
    assert "there is no directory" in capfd.readouterr().err
    assert not (tmp_path / "none").exists()


def test_the_store_may_be_copied_and_checked_elsewhere(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "copy")
    assert run(["verify", "--all", "--store", str(copy)]) == 0


def test_a_broker_checks_for_those_who_have_no_access_to_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And its own scrub finds the same, also after it was killed."""
    root = tmp_path / "data"
    asyncio.run(store_topic(root, sealed={0: [3, 2], 1: [2, 2]}, still_open=[2]))
    monkeypatch.chdir(tmp_path)
    key = keys.segment_file(TOPIC, 0, FileName(3))
    with BrokerProcess(data=root, args=["--scrub-days", "0.0002"]) as broker:
        assert run(["verify", TOPIC, "--url", broker.url]) == 0
        assert run(["verify", "--all", "--url", broker.url, "--json"]) == 0
        assert run(["verify", "none", "--url", broker.url]) == 1
        out, err = capfd.readouterr()
        assert "objects are sound" in out
        assert "there is no topic 'none'" in err
        (root / key).unlink()
        assert run(["verify", TOPIC, "--url", broker.url, "--json"]) == 1
        out, err = capfd.readouterr()
        assert [each["key"] for each in json.loads(out)["objects"]] == [key]
        assert "objects are damaged or missing" in err
        told_by_scrub(broker.url, key)
        broker.kill()
        broker.restart()
        told_by_scrub(broker.url, key)
        capfd.readouterr()
        assert run(["doctor", "--url", broker.url]) == 1
        assert f"of topics {TOPIC}: mq topic describe names them" in capfd.readouterr().out
        assert run(["topic", "describe", TOPIC, "--url", broker.url]) == 0
        assert key in capfd.readouterr().out


def told_by_scrub(url: str, key: str) -> None:
    """Wait until the broker shows what its scrub has found."""
    deadline = time.monotonic() + WAIT_SECONDS
    while f'braidmq_scrub_findings{{kind="missing",topic="{TOPIC}"}} 1.0' not in httpx.get(f"{url}/metrics").text:
        assert time.monotonic() < deadline, "the scrub has found nothing"
        time.sleep(0.05)
    assert [each["key"] for each in httpx.get(f"{url}/v1/topics/{TOPIC}").json()["damaged"]] == [key]


def test_a_store_and_an_address_are_one_too_many(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", TOPIC, "--store", str(root), "--url", "http://127.0.0.1:9"]) == 1
    assert "give --url or --store, not both" in capfd.readouterr().err
    # The command line goes before the environment.
    monkeypatch.setenv("BRAIDMQ_URL", "http://127.0.0.1:9")
    assert run(["verify", TOPIC, "--store", str(root)]) == 0
