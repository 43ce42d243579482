"""One id that a client gives is in the logs of all brokers that worked for its request."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.support.broker.broker_process import BrokerProcess
from tests.support.cluster.zookeeper_process import ZooKeeperProcess

TOPIC = "birds"
MESSAGES = f"/v1/topics/{TOPIC}/messages"
ARGS = ("--access-log", "on", "--log-format", "json")


def broker(name: str, folder: Path, zookeeper: ZooKeeperProcess) -> BrokerProcess:
    args = ["--broker", name, "--zookeeper", zookeeper.address, *ARGS]
    return BrokerProcess(store=(folder / "store").as_uri(), args=args)


def answered(process: BrokerProcess, request_id: str) -> list[dict[str, Any]]:
    """What a broker's access log has under this id. Calls that serve several requests have the ids of all of them."""
    lines = [json.loads(line) for line in process.log.splitlines() if line.startswith("{")]
    of_requests = [line for line in lines if line.get("event") == "request_answered"]
    return [line for line in of_requests if request_id in line["request_id"].split(",")]


def test_a_forwarded_publish_has_its_id_at_both_brokers(tmp_path: Path) -> None:
    with (
        ZooKeeperProcess(tmp_path, session_timeout_seconds=4) as zookeeper,
        broker("b0", tmp_path, zookeeper) as first,
        broker("b1", tmp_path, zookeeper) as second,
    ):
        httpx.put(f"{first.url}/v1/topics/{TOPIC}", json={"segments": 1}, timeout=30).raise_for_status()
        (segment,) = httpx.get(f"{first.url}/v1/topics/{TOPIC}", timeout=30).json()["segments"]
        owner, other = (first, second) if segment["brokers"][0].startswith("b0.") else (second, first)
        for number in range(2):
            headers = {"x-request-id": f"mine-{number}"}
            answer = httpx.post(f"{other.url}{MESSAGES}", content=b"heron", headers=headers, timeout=30)
            assert (answer.raise_for_status().headers["x-request-id"]) == f"mine-{number}"
        assert [second.terminate(), first.terminate()] == [0, 0]
    for number in range(2):
        (taken,), (appended,) = answered(other, f"mine-{number}"), answered(owner, f"mine-{number}")
        assert (taken["method"], taken["path"], taken["status"]) == ("POST", MESSAGES, 200)
        assert appended["path"].startswith("/internal/v1/") and appended["status"] == 200
        assert taken["received_bytes"] == len(b"heron") and appended["received_bytes"] > 0
