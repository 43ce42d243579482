from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.store.rclone_server import KEY_ID, SECRET, rclone_server

Mq = Callable[..., str]


def test_bench_counts_and_leaves_nothing(mq: Mq, mq_json: Callable[..., Any]) -> None:
    told = mq_json("bench", "--messages", "2500", "--size", "10", "--batch", "100", "--segments", "2")
    assert told["publish"]["messages"] == told["read"]["messages"] == 2500
    assert 0 < told["publish"]["p50_ms"] <= told["publish"]["p99_ms"]
    assert "bench-" not in mq("topic", "list")


def test_bench_of_single_messages_and_empty_values(mq_json: Callable[..., Any]) -> None:
    told = mq_json("bench", "--messages", "20", "--size", "0", "--batch", "1", "--connections", "3")
    assert told["read"]["messages"] == 20


def test_bench_stops_in_time(mq: Mq) -> None:
    table = mq("bench", "--messages", "100000000", "--size", "10", "--seconds", "0.2")
    rows = [line.split() for line in table.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ("publish", "read")] == ["publish", "read"]


def test_bench_into_a_topic_that_stays_and_only_once(mq: Mq, mq_fails: Mq, topic: str) -> None:
    mq("bench", "--messages", "10", "--batch", "10", "--topic", topic)
    assert topic in mq("topic", "list")
    assert "already holds messages" in mq_fails("bench", "--messages", "10", "--topic", topic)


def test_doctor_examines_the_broker(mq_json: Callable[..., Any]) -> None:
    findings = {finding["check"]: finding for finding in mq_json("doctor")}
    assert {"broker", "readiness", "topics", "python", "pyarrow"} <= findings.keys()
    assert {finding["result"] for finding in findings.values()} <= {"ok", "warning"}


def test_doctor_examines_a_directory(mq: Mq, tmp_path: Path) -> None:
    assert "conditional writes" in mq("doctor", "--store", str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file() and ".locks" not in path.parts] == []


def test_doctor_fails_where_nobody_answers(capfd: pytest.CaptureFixture[str]) -> None:
    from mq.cli.main import run

    assert run(["doctor", "--url", "http://127.0.0.1:9"]) == 1
    out, err = capfd.readouterr()
    assert "no connection to http://127.0.0.1:9" in out
    assert err == "mq: 1 of 5 checks failed\n"


def test_doctor_fails_on_a_store_without_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from mq.cli.main import run

    (tmp_path / "bucket").mkdir()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("BRAIDMQ_URL", raising=False)
    with rclone_server(tmp_path) as endpoint:
        assert run(["doctor", "--store", "s3://bucket", "--s3-endpoint", endpoint, "--s3-region", "x"]) == 1
    assert "does not honour conditional writes" in capfd.readouterr().out
