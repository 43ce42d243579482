"""Hands out the messages of the queue groups that this broker coordinates, and takes acks, releases and extensions."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from filer.errors import InvalidConfig, InvalidInput
from groups.queue.claims import GivingBack
from groups.settings import MOST_LEASE_SECONDS
from mq.base.errors import Repeatable, StoreTimeout
from mq.broker import Broker
from mq.forms.formats import ARROW, JSON
from mq.forms.group_bodies import AckBody, ClaimBody, ExtensionBody, ReleaseBody
from mq.forms.rendering import copied, rendered
from mq.groups.queue_group import QueueGroup
from mq.groups.segment_groups import SegmentGroups
from mq.limits.read_budget import ReadLease
from mq.service.groups.answers import Claimed, Document
from mq.service.groups.claims_page import arrow_claims, json_claims
from mq.service.groups.decisions import decided
from mq.service.groups.finding import existing_group, made_group, queue_of
from mq.service.groups.granted_messages import read_granted
from mq.service.groups.handlers import Handler
from mq.service.groups.long_bodies import parsed_in_turns
from mq.service.groups.operations import ACK, CLAIM, EXTEND, RELEASE, Asked, Operation
from mq.topic.topic_view import TopicView


class QueueDesk:
    """Serves consumers of queue groups that this broker coordinates."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.handlers: Mapping[Operation[Any, Any], Handler] = {
            CLAIM: self._claim,
            ACK: self._ack,
            RELEASE: self._release,
            EXTEND: self._extend,
        }

    async def _claim(self, groups: SegmentGroups, request: Asked[ClaimBody], lease: ReadLease) -> Claimed:
        """Give up a claim that cannot be answered in time because of the store. It hands no message out."""
        patience_seconds = self._broker.settings.publish_timeout
        limit = asyncio.timeout(patience_seconds + request.body.wait)
        try:
            async with limit:
                return await self._claimed(groups, request, lease)
        except TimeoutError as error:
            if not limit.expired():
                raise
            stall = self._broker.store_health.why()
            told = f"no messages could be handed out within {patience_seconds:g} s (publish_timeout)"
            cause = "timeout" if stall is None else stall.cause
            raise Repeatable(StoreTimeout(f"{told}{'' if stall is None else f': {stall}'}", cause=cause)) from error

    async def _claimed(self, groups: SegmentGroups, request: Asked[ClaimBody], lease: ReadLease) -> Claimed:
        asked = request.body
        group = queue_of(await made_group(self._broker, groups, request, "queue"))
        lease_ms = _lease_ms(asked.lease_seconds, group)
        if asked.scattered and request.accept != ARROW:
            raise InvalidInput(f"scattered claims come as Arrow alone: send 'accept: {ARROW}', or no scattered")
        grants = await group.claim(
            asked.max,
            lease_ms=lease_ms,
            wait_seconds=asked.wait,
            scattered=asked.scattered,
            consumer=asked.consumer,
        )
        try:
            # Not of another topic that has the name now: the granted messages are in this one, or nowhere.
            view = await group.source.view()
            reader = self._broker.reader_of(TopicView(view.runtime), room=lease)
            granted = await read_granted(
                reader, grants, asked.max_bytes, lose=group.lose, take_back=group.take_back_from
            )
        except BaseException:
            group.take_back(grants)
            raise
        # A worker must know whether messages of a key take turns.
        about = {"lease_seconds": lease_ms / 1000, "order": group.progress.settings.order}
        granted = granted.as_shown(view)
        if request.accept == ARROW:
            parts = await copied(arrow_claims(view.shown, granted, group.tokens, about), granted.rows, lease)
            return Claimed(ARROW, parts, granted.rows)
        parts = await rendered(json_claims(view.shown, granted, group.tokens, about), granted.rows, lease)
        return Claimed(JSON, parts, granted.rows)

    async def _ack(self, groups: SegmentGroups, request: Asked[bytes], lease: ReadLease) -> Document:
        acked = await parsed_in_turns(request.body, AckBody, lease)
        group = queue_of(await existing_group(self._broker, groups, request))
        return await decided(acked, group, lease, group.ack)

    async def _release(self, groups: SegmentGroups, request: Asked[bytes], lease: ReadLease) -> Document:
        body = await parsed_in_turns(request.body, ReleaseBody, lease)
        group = queue_of(await existing_group(self._broker, groups, request))
        delay_ms = None if body.delay_seconds is None else round(body.delay_seconds * 1000)
        if body.dead and body.untouched:
            raise InvalidInput("dead and untouched are both true: messages that nobody has worked on are not given up")
        giving_back = GivingBack(body.reason, dead=body.dead, untouched=body.untouched)
        return await decided(body, group, lease, partial(group.release, giving_back=giving_back, delay_ms=delay_ms))

    async def _extend(self, groups: SegmentGroups, request: Asked[bytes], lease: ReadLease) -> Document:
        body = await parsed_in_turns(request.body, ExtensionBody, lease)
        group = queue_of(await existing_group(self._broker, groups, request))
        lease_ms = _lease_ms(body.lease_seconds, group)
        return await decided(body, group, lease, partial(group.extend, lease_ms=lease_ms))


def _lease_ms(asked_seconds: float | None, group: QueueGroup) -> int:
    """The lease in milliseconds. Raises `InvalidConfig` for a lease that is longer than the group's own.

    A coordinator that takes over waits for no longer than that.
    """
    longest_ms = group.progress.settings.lease_ms
    # Compares seconds: a thousand times the largest number would be infinite.
    if asked_seconds is not None and asked_seconds > longest_ms / 1000:
        raise InvalidConfig(
            f"lease_seconds is {asked_seconds:g}: a lease of group {group.name!r} runs for at most "
            f"{longest_ms / 1000:g} s; extend it meanwhile, or give the group a larger lease_seconds "
            f"({MOST_LEASE_SECONDS} at most)"
        )
    return longest_ms if asked_seconds is None else round(asked_seconds * 1000)
