"""What is done to a topic group takes a right on each topic in it, and nothing is taken for granted."""

from typing import Any
from unittest import mock

import pytest

from filer.errors import BraidError, StoreError
from mq.base.errors import Conflict, Forbidden, NotFound
from mq.http.principals import check_members
from mq.security.grants import parse_grants
from mq.security.principal import Principal


def broker_whose_group(found: BraidError | list[str]) -> Any:
    """One whose topic group has these topics, or cannot be told."""
    if isinstance(found, BraidError):
        group = mock.AsyncMock(side_effect=found)
    else:
        group = mock.AsyncMock()
        group.return_value.state.group.topics = found
    return mock.Mock(topic_groups=mock.Mock(group=group))


def principal(*grants: str) -> Principal:
    return Principal("ann", parse_grants(grants))


async def test_each_topic_of_the_group_has_to_be_allowed() -> None:
    broker = broker_whose_group(["orders-a", "bills"])
    with pytest.raises(Forbidden, match="'ann' may not manage every topic of topic group 'g'"):
        await check_members(broker, principal("topic:g:*", "topic:orders-*:*"), "g", "manage")
    await check_members(broker, principal("topic:orders-*:*", "topic:bills:manage"), "g", "manage")
    await check_members(broker, principal("topic:*:manage"), "g", "manage")


async def test_a_topic_that_is_no_group_has_none() -> None:
    for error in (NotFound("topic-group", "no"), Conflict("topic-conflict", "no")):
        await check_members(broker_whose_group(error), principal("topic:t:*"), "t", "manage")


async def test_a_group_that_cannot_be_read_is_not_taken_for_one_without_topics() -> None:
    with pytest.raises(StoreError):
        await check_members(broker_whose_group(StoreError("away")), principal("topic:g:*"), "g", "manage")
