"""Serves requests about consumer groups at the broker that coordinates them."""

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from filer.errors import InvalidConfig, InvalidInput
from filer.times import rfc3339
from filer.topic.positions import Positions
from groups.queue.backlog import Seen
from groups.queue.claims import GivingBack
from groups.queue.redrives import Redrives
from groups.settings import FIXED_SETTINGS, MOST_LEASE_SECONDS, parse_settings
from mq.base.errors import Conflict, NotFound, Repeatable, StoreTimeout
from mq.broker import Broker
from mq.forms.formats import ARROW, JSON
from mq.forms.group_bodies import (
    AckBody,
    ClaimBody,
    ExtensionBody,
    MessagesBody,
    RedriveBody,
    ReleaseBody,
    ResetBody,
)
from mq.forms.json_form import checked_body
from mq.forms.rendering import copied, rendered
from mq.forms.shallow_json import object_of
from mq.groups.group_view import Place, places, read_dead_letters, read_places
from mq.groups.queue_group import QueueGroup
from mq.groups.redriver import MOST_LETTERS, PAGE_BYTES, Chosen
from mq.groups.segment_groups import SegmentGroups
from mq.http.consuming.claims_page import Described, arrow_claims, described_page, json_claims
from mq.http.consuming.decisions import decided, decision_bytes, parsed_in_turns
from mq.http.consuming.finding import (
    check_dead_letter,
    defaults_of,
    existing_group,
    first_positions,
    found_group,
    made_group,
    maker_for,
    queue_of,
)
from mq.http.consuming.granted_messages import read_granted
from mq.http.consuming.group_answer import GroupAnswer, Operation
from mq.http.consuming.group_document import document_of
from mq.http.consuming.stream_desk import StreamDesk
from mq.http.start import moment_of, start_positions
from mq.limits.read_budget import ReadLease
from mq.peers.group_call import GroupRequest
from mq.topic.topic_view import TopicView

FROM, CLAIMS = "from", "claims"
_DECIDING = frozenset(("acks", "releases", "extensions", "commits"))
"""Operations whose bodies name many messages, or segments."""


class GroupDesk:
    """Does the work for groups that this broker coordinates. All methods belong to the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._operations: Mapping[str, Operation] = {
            "put": self._put,
            "describe": self._describe,
            "delete": self._delete,
            "list": self._list,
            "reset": self._reset,
            "redrive": self._redrive,
            "messages": self._messages,
            CLAIMS: self._claim,
            "acks": self._ack,
            "releases": self._release,
            "extensions": self._extend,
            **StreamDesk(broker).operations,
        }

    async def serve(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        """Serve a request. The `lease` holds the memory of the answer. Raises what `problem_of` knows."""
        operation = self._operations.get(request.operation)
        if operation is None:
            raise NotFound("path", f"groups know no {request.operation!r}")
        if request.operation == CLAIMS:
            return await self._claim_in_time(operation(groups, request, lease), _object(request))
        # A decision is stored when the store is back. A client that asks again then gets the same answer.
        what = f"the request {request.operation!r} to group {request.group!r}"
        if request.operation in _DECIDING:
            operation = partial(self._within_budget, operation)
        return await self._broker.patience.wait(operation(groups, request, lease), what)

    async def _within_budget(
        self, operation: Operation, groups: SegmentGroups, request: GroupRequest, lease: ReadLease
    ) -> GroupAnswer:
        async with self._broker.decisions.held(decision_bytes(request.body)):
            return await operation(groups, request, lease)

    async def _claim_in_time(self, claiming: Coroutine[Any, Any, GroupAnswer], asked: dict[str, Any]) -> GroupAnswer:
        """Give up a claim that cannot be answered in time because of the store. It hands no message out."""
        wait_seconds = asked.get("wait", 0)
        patience_seconds = self._broker.settings.publish_timeout
        limit = asyncio.timeout(patience_seconds + (wait_seconds if isinstance(wait_seconds, int | float) else 0))
        try:
            async with limit:
                return await claiming
        except TimeoutError as error:
            if not limit.expired():
                raise
            stall = self._broker.store_health.why()
            told = f"no messages could be handed out within {patience_seconds:g} s (publish_timeout)"
            cause = "timeout" if stall is None else stall.cause
            raise Repeatable(StoreTimeout(f"{told}{'' if stall is None else f': {stall}'}", cause=cause)) from error

    # -- groups --------------------------------------------------------------------------------------------------

    async def _put(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        given = _object(request)
        begin = _begin(given.pop(FROM, None))
        group = await found_group(groups, request)
        created = False
        if group is None:
            settings = parse_settings(given, await defaults_of(self._broker, request.topic))
            await check_dead_letter(self._broker, request.topic, settings)
            group, created = await groups.create(
                request.topic,
                request.group,
                settings,
                lambda: first_positions(self._broker, request.topic, begin),
                maker_for(self._broker, request, by_claim=False),
            )
        if not created:
            known = group.progress.settings
            settings = parse_settings(given, known)
            await check_dead_letter(self._broker, request.topic, settings, known)
            for name in FIXED_SETTINGS:
                if getattr(settings, name) != (stays := getattr(known, name)):
                    raise InvalidConfig(f"{name} of group {request.group!r} is {stays!r} and stays so")
            if settings != known:
                await group.configure(settings)
        document = await document_of(self._broker, group)
        # A group does not remember where it began, only how far it has come.
        differs = {} if created or begin is None else {FROM: {"wanted": begin, "actual": None}}
        return GroupAnswer.of(document | {"created": created, "differs": differs}, 201 if created else 200)

    async def _describe(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        return GroupAnswer.of(await document_of(self._broker, await existing_group(self._broker, groups, request)))

    async def _delete(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        await groups.delete(request.topic, request.group)
        return GroupAnswer(204, JSON, [])

    async def _list(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        """The groups of a topic that this broker coordinates, as far as their keys lie in one segment."""
        named = [
            (name, progress.settings.mode)
            for name, progress in groups.of_topic(request.topic)
            if not await self._broker.groups.source(request.topic, progress).is_over()
        ]
        return GroupAnswer.of({"groups": named})

    async def _reset(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        asked = checked_body(_object(request), ResetBody)
        if (asked.to is None) == (asked.marker is None):
            raise InvalidInput("give either to (earliest, latest or an RFC 3339 time) or marker")
        source = (await existing_group(self._broker, groups, request)).source

        async def positions() -> Positions:
            reader = await source.reader()
            return await start_positions(request.topic, reader, asked.marker, asked.to, default="earliest", field="to")

        group = await groups.reset(request.topic, request.group, positions, force=asked.force)
        return GroupAnswer.of(await document_of(self._broker, group))

    async def _redrive(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        asked, group = (
            checked_body(_object(request), RedriveBody),
            queue_of(await existing_group(self._broker, groups, request)),
        )
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
            return GroupAnswer.of(told | {"before": len(set(asked.ids)) - chosen.count})
        return GroupAnswer.of(told | {"more": chosen.has_more})

    async def _messages(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        asked, group = (
            checked_body(_object(request), MessagesBody),
            queue_of(await existing_group(self._broker, groups, request)),
        )
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
            return GroupAnswer.of({"messages": [], "next": next_})
        described = [Described([_about(seen)] * run.table.num_rows, run) for seen, run in shown.found]
        state = (await self._broker.topics.view(topic)).shown
        return GroupAnswer(
            200, JSON, await rendered(described_page(state, described, {"next": next_}), shown.rows, lease)
        )

    # -- claims ----------------------------------------------------------------------------------------------------

    async def _claim(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        asked = checked_body(_object(request), ClaimBody)
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
            return GroupAnswer(200, ARROW, parts)
        parts = await rendered(json_claims(view.shown, granted, group.tokens, about), granted.rows, lease)
        return GroupAnswer(200, JSON, parts)

    # -- acks, releases, extensions --------------------------------------------------------------------------------

    async def _ack(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        acked = await parsed_in_turns(request.body, AckBody, lease)
        group = queue_of(await existing_group(self._broker, groups, request))
        return await decided(acked, group, lease, group.ack)

    async def _release(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        body = await parsed_in_turns(request.body, ReleaseBody, lease)
        group = queue_of(await existing_group(self._broker, groups, request))
        delay_ms = None if body.delay_seconds is None else round(body.delay_seconds * 1000)
        if body.dead and body.untouched:
            raise InvalidInput("dead and untouched are both true: messages that nobody has worked on are not given up")
        giving_back = GivingBack(body.reason, dead=body.dead, untouched=body.untouched)
        return await decided(body, group, lease, partial(group.release, giving_back=giving_back, delay_ms=delay_ms))

    async def _extend(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        body = await parsed_in_turns(request.body, ExtensionBody, lease)
        group = queue_of(await existing_group(self._broker, groups, request))
        lease_ms = _lease_ms(body.lease_seconds, group)
        return await decided(body, group, lease, partial(group.extend, lease_ms=lease_ms))


def _object(request: GroupRequest) -> dict[str, Any]:
    return object_of(request.body or b"{}", _EXAMPLES[request.operation])


_EXAMPLES = {
    "put": '{"mode": "queue", "lease_seconds": 60}',
    "reset": ResetBody.EXAMPLE,
    "redrive": RedriveBody.EXAMPLE,
    "messages": MessagesBody.EXAMPLE,
    CLAIMS: ClaimBody.EXAMPLE,
}
"""An example of a body for each operation."""


def _begin(given: Any) -> str | None:
    """Where a group is to begin, even if the group exists already. Raises `InvalidConfig` and `InvalidInput`."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise InvalidConfig(f"{FROM} is earliest, latest or an RFC 3339 time, not {given!r:.60}")
    if given not in ("earliest", "latest"):
        moment_of(given)
    return given


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
