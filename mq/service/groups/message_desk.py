"""Shows messages of the queue groups that this broker coordinates, and publishes their dead letters again."""

from collections.abc import Mapping
from typing import Any

from filer.errors import InvalidInput
from filer.times import rfc3339
from groups.queue.backlog import Seen
from groups.queue.redrives import Redrives
from mq.base.errors import Conflict
from mq.broker import Broker
from mq.forms.group_bodies import MessagesBody, RedriveBody
from mq.forms.rendering import rendered
from mq.groups.group_view import Place, places, read_dead_letters, read_places
from mq.groups.queue_group import QueueGroup
from mq.groups.redriver import MOST_LETTERS, PAGE_BYTES, Chosen
from mq.groups.segment_groups import SegmentGroups
from mq.limits.read_budget import ReadLease
from mq.service.groups.answers import Document
from mq.service.groups.claims_page import Described, described_page
from mq.service.groups.finding import existing_group, queue_of
from mq.service.groups.handlers import Handler
from mq.service.groups.operations import LOOK, REDRIVE, Asked, Operation


class MessageDesk:
    """Finds messages of queue groups that this broker coordinates. Hands none out."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.handlers: Mapping[Operation[Any, Any], Handler] = {REDRIVE: self._redrive, LOOK: self._look}

    async def _redrive(self, groups: SegmentGroups, request: Asked[RedriveBody], lease: ReadLease) -> Document:
        asked, group = request.body, queue_of(await existing_group(self._broker, groups, request))
        if asked.max is not None and asked.ids is not None:
            raise InvalidInput("give max (the oldest dead letters) or ids, not both")
        await lease.take(PAGE_BYTES)
        letters, of_group = _letters_of(group), (group.source, group.name)
        redriver = self._broker.groups.redriver

        async def choose(redrives: Redrives) -> Chosen:
            if asked.ids is None:
                return await redriver.choose(*of_group, letters, redrives, asked.max or MOST_LETTERS)
            places = [_place(each) for each in asked.ids]
            return await redriver.named(*of_group, letters, redrives, places, discard=asked.discard)

        chosen = await group.redrive(choose, discard=asked.discard)
        told = {"discarded" if asked.discard else "redriven": chosen.count}
        if asked.ids is not None:
            return Document.of(told | {"before": len(set(asked.ids)) - chosen.count})
        return Document.of(told | {"more": chosen.has_more})

    async def _look(self, groups: SegmentGroups, request: Asked[MessagesBody], lease: ReadLease) -> Document:
        asked, group = request.body, queue_of(await existing_group(self._broker, groups, request))
        after = None if asked.after is None else _place(asked.after)
        bounds = {"most": asked.limit, "max_bytes": asked.max_bytes}
        if asked.state == "dead":
            await lease.take(PAGE_BYTES)
            topic, redriver = _letters_of(group), self._broker.groups.redriver
            shown = await read_dead_letters(redriver, group, topic, after=after, **bounds)
        else:
            topic, state = group.topic, (await group.source.view()).state
            ranges = places(group.seen(asked.state), group.progress, group.positions(), state, asked.state)
            now_ms = self._broker.clock.now_us() // 1000
            shown = await read_places(group.source, ranges, room=lease, after=after, now_ms=now_ms, **bounds)
        reached = shown.reached if shown.has_more else None
        next_ = None if reached is None else f"{reached.segment}-{reached.offset}"
        if not shown.found:
            return Document.of({"messages": [], "next": next_})
        described = [Described([_about(seen)] * run.table.num_rows, run) for seen, run in shown.found]
        state = (await self._broker.topics.view(topic)).shown
        return Document(await rendered(described_page(state, described, {"next": next_}), shown.rows, lease))


def _letters_of(group: QueueGroup) -> str:
    """The topic of a group's dead letters. Raises `Conflict` if it has none."""
    target = group.progress.settings.dead_letter
    if target is None:
        raise Conflict("no-dead-letters", f"group {group.name!r} keeps no dead letters: its dead_letter is null")
    return target.topic


def _place(message_id: str) -> Place:
    segment, _, offset = message_id.partition("-")
    return Place(int(segment), int(offset))


def _about(seen: Seen) -> dict[str, Any]:
    """The additional fields of messages that are shown. A dead letter has them in its headers."""
    if seen.left_ms is not None:
        return {"deliveries": seen.deliveries, "lease_seconds": seen.left_ms / 1000}
    due = {} if seen.due_ms is None else {"deliver_at": rfc3339(seen.due_ms * 1000)}
    return {"deliveries": seen.deliveries, **due}
