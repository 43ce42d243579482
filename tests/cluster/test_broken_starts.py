"""A broker always starts, whatever its topics are like; it refuses only a cluster that it cannot know."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.broker.broker_process import BrokerFailedToStart, BrokerProcess
from tests.support.process.processes import until

TOPICS = ("cut-record", "lost-record", "flipped-record", "cut-file", "lost-file", "cut-seal", "lost-seal", "cut-index")


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: len(data) // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], None]] = {"cut": cut, "lost": Path.unlink, "flipped": flip}


def damaged_object(folder: Path, kind: str) -> Path:
    """The object of a topic that is to be damaged. Segment 0 is sealed, its successor is open."""
    files = sorted((folder / "segments" / "segment=0").glob("*.parquet"))
    return {
        "record": folder / "topic.json",
        "file": files[0],
        "seal": files[-1],
        "index": next((folder / "index").glob("*.snapshot"), folder / "topic.json"),
    }[kind]


def test_one_of_everything_is_broken(tmp_path: Path) -> None:
    topics = tmp_path / "topics"
    with BrokerProcess(data=tmp_path) as broker, httpx.Client(timeout=30) as client:
        for topic in ("good", *TOPICS):
            url = f"{broker.url}/v1/topics/{topic}"
            client.put(url).raise_for_status()
            for value in ("one", "two"):
                client.post(f"{url}/messages?key=k", content=value).raise_for_status()
            client.post(f"{url}/segments/0/split", json={"parts": 2}).raise_for_status()
            client.post(f"{url}/messages?key=k", content="three").raise_for_status()
        broker.kill()
    paths = [damaged_object(topics / topic, topic.partition("-")[2]) for topic in TOPICS]
    whole = [path.read_bytes() for path in paths]
    for topic, path in zip(TOPICS, paths, strict=True):
        DAMAGE[topic.partition("-")[0]](path)
    with BrokerProcess(data=tmp_path) as broker, httpx.Client(timeout=30) as client:
        url = f"{broker.url}/v1/topics"
        client.post(f"{url}/good/messages?key=k", content="four").raise_for_status()
        good = client.get(f"{url}/good/messages").raise_for_status().json()["messages"]
        assert [each["value"] for each in good] == ["one", "two", "three", "four"]
        for topic in ("cut-record", "lost-record", "flipped-record"):
            told = client.get(f"{url}/{topic}").json()
            kind = "data-missing" if topic == "lost-record" else "data-damaged"
            assert (told["type"], told["key"]) == (f"urn:braidmq:{kind}", f"topics/{topic}/topic.json"), told
            line = f"WARNING mq.topic.topic_faults: topic_unusable topic={topic} key="
            # A thread reads what the broker logs, and may be behind the answer.
            until(lambda line=line: line in broker.log)
        for path, data in zip(paths, whole, strict=True):
            path.unlink(missing_ok=True)
            path.write_bytes(data)
        for topic in ("cut-record", "lost-record", "flipped-record"):
            again = f"{url}/{topic}/messages"
            until(lambda path=again: client.post(f"{path}?key=k", content="four").is_success)
            found = client.get(f"{url}/{topic}/messages").raise_for_status().json()["messages"]
            assert [each["value"] for each in found] == ["one", "two", "three", "four"]


def refused(data: Path, *args: str) -> str:
    """The one line that a broker says before it exits with 1."""
    broker = BrokerProcess(data=data, args=args)
    with pytest.raises(BrokerFailedToStart), broker:
        pass
    assert broker.returncode == 1
    [line] = [line for line in broker.log.splitlines() if line.startswith("mq: ")]
    return line


def test_a_cluster_that_cannot_be_known_is_refused_in_one_line(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path, args=("--grace", "60")) as broker:
        httpx.put(f"{broker.url}/v1/topics/orders").raise_for_status()
        broker.terminate()
    record, settings = tmp_path / "cluster" / "cluster.json", tmp_path / "cluster" / "settings.json"
    assert json.loads(settings.read_bytes())["grace_seconds"] == 60
    line = refused(tmp_path, "--grace", "7")
    assert "--grace 7" in line and "60" in line
    kept = record.read_bytes()
    copy = settings.with_name("settings-copy.json")
    for damage in (cut, Path.unlink):
        for each in (record, settings, copy):
            damage(each)
            with BrokerProcess(data=tmp_path, args=("--grace", "60")) as broker:
                assert httpx.get(f"{broker.url}/v1/topics/orders").is_success
        assert record.read_bytes() == kept and settings.read_bytes() == copy.read_bytes()
    cut(settings)
    cut(copy)
    assert "cluster/settings.json cannot be read: put it back, or delete it" in refused(tmp_path, "--grace", "60")
    for each in (record, settings, copy):
        each.unlink()
    assert "cluster/cluster.json is gone, but the store has topics" in refused(tmp_path, "--grace", "60")
