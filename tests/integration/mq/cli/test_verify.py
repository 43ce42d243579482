import asyncio
import json
import shutil
from pathlib import Path

import pytest

from filer import keys
from filer.keys import FileName
from mq.cli.main import run
from tests.support.topic.stored_topic import TOPIC, store_topic


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
    assert json.loads(answer) == {"ok": 5, "unchecked": 0, "damaged": 0, "missing": 0, "objects": []}


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


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--all", "--store", str(tmp_path / "none")]) == 1
    assert "there is no directory" in capfd.readouterr().err
    assert not (tmp_path / "none").exists()


def test_the_store_may_be_copied_and_checked_elsewhere(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "copy")
    assert run(["verify", "--all", "--store", str(copy)]) == 0
