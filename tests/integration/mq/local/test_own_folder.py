"""`mq local --secure` starts in a folder of the user's own, or tells in one line why not, and touches nothing."""

import os
from pathlib import Path

import pytest

from filer.errors import InvalidInput
from mq.cli.main import run
from mq.local.secure.own_files import keep_to_owner


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("mq.local.zookeeper._java", lambda: "java")
    monkeypatch.setattr("mq.local.zookeeper._classpath", lambda: "jars/*")
    # It is set for the process, which is that of the tests here.
    monkeypatch.setattr("os.umask", lambda mask: mask)


def refused(data: Path, capfd: pytest.CaptureFixture[str]) -> str:
    assert run(["local", "--secure", "--data", str(data), "--port", "0"]) == 1
    told = capfd.readouterr().err
    assert told.startswith("mq: ") and told.count("\n") == 1
    return told


@pytest.mark.parametrize("name", ["", "logs", "store", "secure", "lock", "zookeeper-1"])
def test_a_link_is_refused_before_anything_is_done(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs, data = tmp_path / "theirs", tmp_path / "data"
    theirs.mkdir(mode=0o755)
    (theirs / "broker-1.log").write_text("theirs")
    if name:
        data.mkdir(mode=0o700)
    (data / name).symlink_to(theirs)
    assert f"{str(data / name)!r} is a link" in refused(data, capfd)
    assert [each.name for each in theirs.iterdir()] == ["broker-1.log"] and theirs.stat().st_mode & 0o777 == 0o755
    assert not name or [each.name for each in data.iterdir()] == [name]


@pytest.mark.parametrize("name", ["", "logs", "store", "secure"])
def test_what_others_may_write_is_refused(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data" / name).mkdir(mode=0o700, parents=True)
    (tmp_path / "data").chmod(0o700)
    (tmp_path / "data" / name).chmod(0o770)
    assert "may be written by others, with its mode 0770: chmod go-w" in refused(tmp_path / "data", capfd)


@pytest.mark.parametrize("name", ["", "logs", "store", "secure"])
def test_a_folder_of_another_user_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / name).mkdir(mode=0o700, parents=True)
    (tmp_path / "data").chmod(0o700)
    lstat = Path.lstat

    def placed(path: Path) -> os.stat_result:
        found = lstat(path)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:])) if path == tmp_path / "data" / name else found

    monkeypatch.setattr(Path, "lstat", placed)
    assert f"{str(tmp_path / 'data' / name)!r} belongs to user {os.geteuid() + 1}" in refused(tmp_path / "data", capfd)


def test_no_mode_is_changed_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, store = tmp_path / "theirs", tmp_path / "store"
    theirs.mkdir(mode=0o755)
    keep_to_owner(store)
    assert store.stat().st_mode & 0o777 == 0o700
    store.chmod(0o755)
    keep_to_owner(store)
    assert store.stat().st_mode & 0o777 == 0o700
    store.rmdir()
    store.symlink_to(theirs)
    with pytest.raises(InvalidInput, match="is a link"):
        keep_to_owner(store)
    # The link took its place after it was looked at.
    monkeypatch.setattr("mq.local.secure.own_files.refuse_if_not_own", lambda path: None)
    with pytest.raises(OSError, match="store"):
        keep_to_owner(store)
    assert theirs.stat().st_mode & 0o777 == 0o755
