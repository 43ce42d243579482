"""A broker is killed, and one of its files is deleted: it starts, tells what is gone, and goes on without it."""

from pathlib import Path

import httpx

from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.processes import until


def publish(client: httpx.Client, number: int) -> httpx.Response:
    query = {"key": "k", "producer": "p", "sequence": str(number + 1)}
    return client.post("/v1/topics/t/messages", params=query, content=b"%d" % number)


def values(client: httpx.Client, offset: int) -> list[str]:
    page = client.get("/v1/topics/t/segments/0/messages", params={"offset": str(offset)}).raise_for_status().json()
    return [message["value"] for message in page["messages"]]


def lost(client: httpx.Client) -> list[dict[str, object]]:
    found: list[dict[str, object]] = client.get("/v1/topics/t").raise_for_status().json()["damaged"]
    return found


def test_a_file_is_deleted_and_put_back(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path) as broker, httpx.Client(timeout=30) as client:
        client.base_url = httpx.URL(broker.url)
        client.put("/v1/topics/t", json={"min_segments": 1}).raise_for_status()
        for number in range(6):
            publish(client, number).raise_for_status()
        broker.kill()
        files = sorted((tmp_path / "topics/t/segments/segment=0").iterdir())
        assert len(files) == 6
        data = files[2].read_bytes()
        files[2].unlink()

        broker.start()
        client.base_url = httpx.URL(broker.url)
        key = f"topics/t/segments/segment=0/{files[2].name}"
        assert client.get("/v1/topics/t").json()["segments"][0]["end_offset"] == 6
        assert values(client, 0) == ["0", "1"]
        assert values(client, 3) == ["3", "4", "5"]
        refused = client.get("/v1/topics/t/segments/0/messages", params={"offset": "2"})
        told = refused.json()
        assert (refused.status_code, told["type"], told["retryable"]) == (503, "urn:braidmq:data-missing", False)
        assert (told["key"], told["segment"], told["offset"], told["next_offset"]) == (key, 0, 2, 3)
        assert [(each["key"], each["what"]) for each in lost(client)] == [(key, "missing")]
        assert 'braidmq_missing_objects{kind="missing",topic="t"} 1.0' in client.get("/metrics").text
        assert broker.log.count(f'lost_objects: object_unreadable topic=t segment=0 key="{key}" condition=missing') == 1
        first = client.get("/v1/topics/t/files").raise_for_status().json()
        assert [each["base_offset"] for each in first["files"]] == [0, 1]
        assert client.get("/v1/topics/t/files", params={"after": first["next"]}).json()["key"] == key
        assert publish(client, 5).json()["positions"][0]["offset"] == 5, "the first answer again"
        assert publish(client, 2).json()["type"] == "urn:braidmq:sequence-expired"
        assert publish(client, 6).raise_for_status().json()["positions"][0]["segment"] == 1

        files[2].write_bytes(data)
        until(lambda: not lost(client))
        assert values(client, 0) == ["0", "1", "2", "3", "4", "5"]
        broker.kill()
        broker.start()
        client.base_url = httpx.URL(broker.url)
        page = client.get("/v1/topics/t/messages").raise_for_status().json()
        assert [message["value"] for message in page["messages"]] == ["0", "1", "2", "3", "4", "5", "6"]
