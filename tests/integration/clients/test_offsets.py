"""Reading and publishing with the caller's own offsets and ids, as Spark does."""

import asyncio

import pyarrow as pa
import pytest

from braidmq import InvalidArgument, InvalidMarker, InvalidRequest, SegmentNotFound
from braidmq.testing import InMemoryBroker

TABLE = pa.table({"key": ["a", "b", "c"], "value": ["1", "2", "3"]})


def test_a_request_of_ones_own_id_is_stored_once(broker: InMemoryBroker, topic: str) -> None:
    """By another client, and after the segment has split."""
    with broker.client() as client, broker.client() as other:
        client.create_topic(topic)
        first = client.publish_request(topic, TABLE, producer_id="job.0", sequence=7)
        client.split_segment(topic, 0)
        assert other.publish_request(topic, TABLE, producer_id="job.0", sequence=7) == first
        other.publish_request(topic, TABLE, producer_id="job.0", sequence=8)
        assert client.read_table(topic).num_rows == 6
        with pytest.raises(InvalidArgument, match="producer_id"):
            client.publish_request(topic, TABLE, producer_id="a b", sequence=8)


def test_pages_of_a_segment(broker: InMemoryBroker, topic: str) -> None:
    with broker.client() as client:
        client.create_topic(topic)
        client.publish_table(topic, TABLE, key="key", value="value")
        page = client.segment_page(topic, 0, offset=1, limit=1)
        assert (page.table["value"].to_pylist(), page.next_offset, page.end_offset) == ([b"2"], 2, None)
        client.split_segment(topic, 0)
        page = client.segment_page(topic, 0, offset=3)
        assert (page.table.num_rows, page.next_offset, page.end_offset) == (0, 3, 3)
        with pytest.raises(SegmentNotFound):
            client.segment_page(topic, 9)
        with pytest.raises(InvalidRequest, match="beyond the end"):
            client.segment_page(topic, 0, offset=4)
        with pytest.raises(InvalidArgument, match="limit is 0"):
            client.segment_page(topic, 0, limit=0)


def test_positions(broker: InMemoryBroker, topic: str) -> None:
    with broker.client() as client:
        client.create_topic(topic)
        client.publish_table(topic, TABLE, key="key", value="value")
        assert client.position(topic).offsets == {0: 3}
        assert client.position(topic, from_="earliest").offsets == {0: 0}
        latest = client.position(topic)
        client.split_segment(topic, 0)
        assert client.position(topic, marker=latest.marker).offsets == {1: 0, 2: 0}
        with pytest.raises(InvalidMarker):
            client.position(topic, marker="x")


async def test_waiting_behind_a_marker(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic)
        marker = (await client.position(topic)).marker
        assert not await client.wait_behind(topic, marker, seconds=0.01)
        waiting = asyncio.create_task(client.wait_behind(topic, marker, seconds=30))
        await client.publish(topic, "at last")
        async with asyncio.timeout(10):
            assert await waiting
