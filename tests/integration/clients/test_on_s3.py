"""Payloads at presigned addresses: they never pass through the broker."""

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidmq import Client
from braidmq.read.remote_file import RemoteFile
from tests.support.broker.broker_process import BrokerProcess


def test_payloads_and_files_go_by_presigned_addresses(s3_endpoint: str, s3_bucket: str) -> None:
    large = bytes(range(256)) * 10_000
    args = ["--s3-endpoint", s3_endpoint, "--s3-addressing", "path"]
    with BrokerProcess(store=f"s3://{s3_bucket}/prefix", args=args) as broker, Client(broker.url) as client:
        client.create_topic("t")
        client.publish("t", large, key="k")
        client.publish("t", "small")
        first, second = client.browse("t")
        assert first.ref is not None
        assert second.value == b"small"
        with client.open(first) as file:
            assert file.read() == large
        files = list(client.files("t"))
        assert files[0].url is not None
        parquet = httpx.get(files[0].url).raise_for_status().content
        assert pq.read_table(pa.BufferReader(parquet)).num_rows == files[0].count


def test_who_is_far_behind_reads_files_by_presigned_addresses(
    s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 30_000
    fetched: list[str] = []
    fetch = RemoteFile._fetch

    def spied(self: RemoteFile, start: int, stop: int) -> bytes:
        fetched.append(self._url)
        return fetch(self, start, stop)

    monkeypatch.setattr(RemoteFile, "_fetch", spied)
    args = ["--s3-endpoint", s3_endpoint, "--s3-addressing", "path"]
    with BrokerProcess(store=f"s3://{s3_bucket}/far", args=args) as broker, Client(broker.url) as client:
        client.create_topic("t", segments=2)
        client.publish_table("t", pa.table({"k": range(rows), "v": [b"v"] * rows}), key="k", value="v")
        table = client.read_table("t")
    assert fetched
    assert sorted(int(key) for key in table["key"].to_pylist()) == list(range(rows))
