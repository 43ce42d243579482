import asyncio
import json
from pathlib import Path

import pytest

from filer import keys
from filer.clock import SystemClock
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef, recover_index
from filer.stores.local.local_store import LocalStore
from filer.topic.cluster_record import open_cluster
from mq.base.settings import BrokerSettings
from mq.cli.main import run
from tests.support.topic.segment_files import append
from tests.support.topic.stored_topic import TOPIC, store_topic

LOST = keys.segment_file(TOPIC, 0, FileName(3))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"

    async def fill() -> None:
        await store_topic(root, sealed={0: [3, 2, 1]})
        store, settings = LocalStore(root, clock=SystemClock()), BrokerSettings()
        await open_cluster(store, SystemClock(), settings.cluster, grace_seconds=settings.grace)
        await store.close()

    asyncio.run(fill())
    return root


def repair(root: Path, *options: str) -> int:
    return run(["topic", "repair", TOPIC, "--store", str(root), *options])


def test_a_whole_topic(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert repair(root) == repair(root, "--accept-loss") == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("nothing of topic t is lost that has to be given up\n" * 2, "")


def test_nothing_happens_without_consent(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (root / LOST).unlink()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert repair(root) == 1
    out, err = capfd.readouterr()
    assert out.splitlines()[-1].split() == ["0", "3", "4", "2", LOST, "missing"]
    assert err.count("\n") == 1 and "2 messages of topic 't' cannot be read, and nothing was changed" in err
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_what_is_accepted_is_given_up(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (root / LOST).unlink()
    assert repair(root, "--accept-loss", "--json") == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer == {
        "topic": TOPIC,
        "accepted": True,
        "losses": [{"segment": 0, "offset": 3, "next_offset": 5, "messages": 2, "key": LOST, "what": "missing"}],
        "objects": [],
    }
    assert repair(root) == repair(root, "--accept-loss") == 0
    assert run(["verify", TOPIC, "--store", str(root), "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["given_up"] == 1


def test_an_empty_seal_and_a_file_of_unknown_length(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (root / keys.segment_file(TOPIC, 0, FileName(6))).unlink()
    (root / keys.segment_file(TOPIC, 1, FileName(0))).write_bytes(b"not Parquet at all")
    assert repair(root) == 1
    out, err = capfd.readouterr()
    assert [line.split()[1:4] for line in out.splitlines()[2:]] == [["6", "no", "message"], ["0", "unknown", "unknown"]]
    assert "0 messages and those of 1 file of unknown length" in err


def test_what_keeps_nobody_from_reading_is_told_and_never_given_up(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    history, payload = keys.history(TOPIC, 0, 0), f"{keys.topic_folder(TOPIC)}uploads/u"
    (root / history).parent.mkdir()
    (root / history).write_bytes(b"{")
    assert repair(root, "--accept-loss") == 1
    out, err = capfd.readouterr()
    assert out.splitlines()[0] == "nothing of topic t is lost that has to be given up"
    assert out.splitlines()[1].startswith(f"damaged: {history}: ")
    assert f"{history} is damaged: put back what you can" in err

    async def refer() -> None:
        store = LocalStore(root, clock=SystemClock())
        ref = SegmentRef(TOPIC, 1)
        await append(store, ref, await recover_index(store, ref), 1, uris=["uploads/u"])
        await store.close()

    asyncio.run(refer())
    assert repair(root, "--accept-loss") == 1
    out, err = capfd.readouterr()
    assert out.splitlines()[2] == f"missing: {payload}: message 1-3 refers to it, and it is not there"
    assert f"{history} is damaged, and so is one more object: put back what you can" in err
    assert repair(root, "--json") == 1
    told = json.loads(capfd.readouterr().out)
    assert [each["key"] for each in told["objects"]] == [history, payload] and not told["losses"]


def test_a_damaged_record_cannot_be_given_up(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (root / keys.topic(TOPIC)).write_bytes(b"{")
    assert repair(root, "--accept-loss") == 1
    assert keys.topic(TOPIC) in capfd.readouterr().err
    assert (root / keys.topic(TOPIC)).read_bytes() == b"{"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([TOPIC, "--accept"], 2, "No such option: --accept"),
        (["none"], 1, "there is no topic 'none' on this store"),
        (["a/b"], 1, "'a/b' cannot name a topic"),
    ],
)
def test_wrong_input_is_one_line(
    root: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, told: str
) -> None:
    assert run(["topic", "repair", *arguments, "--store", str(root)]) == code
    err = capfd.readouterr().err
    assert told in err and err.count("\n") == 1


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "repair", TOPIC, "--store", str(tmp_path / "none")]) == 1
    assert "there is no directory" in capfd.readouterr().err
    assert not (tmp_path / "none").exists()
