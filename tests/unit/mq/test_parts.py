"""Addresses of brokers: those that live, and for a while those that did."""

from typing import Any

import pytest

from leader.coordinator import BrokerInfo
from mq import parts as subject
from mq.parts import Parts


class Announced:
    """The brokers that are announced."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def brokers(self) -> list[BrokerInfo]:
        return [BrokerInfo(name, f"http://{name}", "", "1") for name in self.names]


@pytest.fixture
def announced() -> Announced:
    return Announced()


@pytest.fixture
def parts(announced: Announced) -> Parts:
    fields: dict[str, Any] = dict.fromkeys(Parts.__slots__)
    return Parts(**(fields | {"coordinator": announced, "last_urls": {}}))


def test_one_that_was_never_asked_for_is_known_after_it_has_gone(announced: Announced, parts: Parts) -> None:
    announced.names = ["a", "b"]
    parts.note_addresses()
    announced.names = ["a"]
    assert parts.url_of("b") is None
    assert parts.last_url_of("b") == "http://b"
    assert parts.last_url_of("never heard of") is None


def test_those_longest_gone_are_forgotten(announced: Announced, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted broker is another one: their number only grows."""
    monkeypatch.setattr(subject, "MOST_LAST_URLS", 10)
    for life in range(100):
        announced.names = ["stays", f"b.{life}"]
        parts.note_addresses()
    assert len(parts.last_urls) == 10
    announced.names = []
    assert parts.last_url_of("b.99") == "http://b.99" and parts.last_url_of("stays") == "http://stays"
    assert parts.last_url_of("b.0") is None
    announced.names = [f"c{n}" for n in range(20)]
    assert all(parts.last_url_of(name) == f"http://{name}" for name in announced.names)
