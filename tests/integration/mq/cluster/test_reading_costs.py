"""What a page at the tail costs the store: nothing in good days, and in bad ones no more than it takes to be sure."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.cluster.http_cluster import HttpCluster

SEGMENTS = 12


@pytest.fixture
async def brokers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpCluster]:
    """Three brokers, of which `b` does nothing by itself while pages are counted; a topic of four segments at each."""
    # However slow the machine: a page must not come when it is time to look at others' segments again.
    monkeypatch.setattr("mq.topic.topic_reads.REMOTE_INDEX_SECONDS", 3600.0)
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b", "c", report_interval=3600, maintenance_interval=3600)
        await cluster.create("a", "t", segments=SEGMENTS)
        assert await cluster.owners("a", "t") == {"a": 4, "b": 4, "c": 4}
        await cluster.publish("a", "t", *((f"key-{n}", f"{n}") for n in range(200)))
        yield cluster
    finally:
        await cluster.stop_all()


async def page(brokers: HttpCluster, marker: str | None, **params: Any) -> tuple[list[Any], str, Counter[str]]:
    """A page from broker `b`, which does not lead: messages, marker, and what it asked the store."""
    before = brokers.store_calls("b")
    asked = params if marker is None else {"marker": marker, **params}
    answer = await brokers.get("b", "/v1/topics/t/messages", limit=1000, **asked)
    return answer["messages"], answer["marker"], brokers.store_calls("b") - before


async def test_at_the_tail_the_store_is_not_asked(brokers: HttpCluster) -> None:
    messages, marker, _ = await page(brokers, None)
    assert len(messages) == 200
    for params in ({}, {"wait": 0.3}):
        messages, marker, calls = await page(brokers, marker, **params)
        assert (messages, calls) == ([], {})


async def test_a_broker_that_cannot_be_sure_of_its_segments_reads_the_record_once_a_page(brokers: HttpCluster) -> None:
    """Any of them may have been sealed by others, and have successors."""
    _, marker, _ = await page(brokers, None)
    brokers.membership.leaders = set()
    brokers.expel("b")
    messages, _, calls = await page(brokers, marker)
    assert (messages, calls) == ([], {"get": 1})


async def test_of_silent_owners_the_record_is_read_once_and_each_segment_looked_at_once(brokers: HttpCluster) -> None:
    _, marker, _ = await page(brokers, None)
    brokers.membership.leaders = set()
    brokers.cut_off("c")
    messages, _, calls = await page(brokers, marker)
    # A listing, and the first name that is missing in it, for each segment of c.
    assert (messages, calls) == ([], {"get": 1 + 4, "list": 4})
