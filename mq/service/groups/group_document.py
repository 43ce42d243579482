"""The description of a group: its settings, its progress, and its consumers or members."""

from collections.abc import Mapping
from typing import Any

from mq.broker import Broker
from mq.groups.dead_letter_count import open_letters
from mq.groups.lag import Lag, lag_of
from mq.groups.queue_group import Consuming, QueueGroup
from mq.groups.segment_groups import Group
from mq.groups.stream_group import StreamGroup

MOST_CONSUMERS = 100

_AT_MOST = {"at_most": True}
"""The topic group's other members have too many messages to count them."""


async def document_of(broker: Broker, group: Group) -> dict[str, Any]:
    """The group as JSON. Raises as `lag_of`."""
    lag = await lag_of(group.progress, group.positions(), group.source, broker.clock, group.lag_memory)
    return {
        "topic": group.topic,
        "group": group.name,
        "settings": group.progress.settings.in_force(),
        "coordinator": broker.id,
        "lag": {"messages": lag.messages, **_seconds(lag), **({} if lag.is_exact else _AT_MOST)},
        **(await _of_queue(group, lag) if isinstance(group, QueueGroup) else _of_stream(group, lag)),
        "skipped": group.progress.skipped_count + lag.removed,
    }


def _seconds(lag: Lag) -> dict[str, Any]:
    return {"seconds": None if lag.seconds is None else round(lag.seconds, 3)}


async def _of_queue(group: QueueGroup, lag: Lag) -> dict[str, Any]:
    progress = group.progress
    return {
        "delayed": lag.delayed,
        "in_flight": group.in_flight,
        "waiting_consumers": group.waiting_count,
        **_consumers(group.consumers()),
        "dead": await open_letters(group.source, group.name, progress, group.letters_seen),
        "dead_total": progress.dead_count,
        "expired": progress.expired_count,
        **_delayed_letters(group),
    }


def _delayed_letters(group: QueueGroup) -> dict[str, Any]:
    """Messages that are given up and whose dead letters cannot be stored, as long as there are any."""
    delayed = group.letters_delayed
    return {} if delayed is None else {"dead_letters_delayed": {"messages": delayed[0], "reason": delayed[1]}}


def _consumers(found: Mapping[str, Consuming]) -> dict[str, Any]:
    """The `MOST_CONSUMERS` with the most messages, and how many others there are."""
    ranked = sorted(found.items(), key=lambda each: (-each[1].in_flight, -each[1].waiting, each[0]))
    shown = [
        {"consumer": name or None, "in_flight": each.in_flight, "waiting": each.waiting}
        for name, each in ranked[:MOST_CONSUMERS]
    ]
    more = len(ranked) - MOST_CONSUMERS
    return {"consumers": shown, **({"more_consumers": more} if more > 0 else {})}


def _of_stream(group: StreamGroup, lag: Lag) -> dict[str, Any]:
    """The group's members and segments. Segments that wait for their predecessors count in the lag of the whole."""
    progress = group.progress
    holders = {
        segment: each.member if progress.members.get(each.member) == each.start else None
        for segment, each in progress.segments.items()
    }
    return {
        "members": [
            {
                "member_id": member,
                "member_epoch": start,
                "session_ends_in_seconds": group.left_ms(member) / 1000,
                "segments": sorted(segment for segment, holder in holders.items() if holder == member),
            }
            for member, start in sorted(progress.members.items())
        ],
        "segments": [
            {
                "segment": segment,
                "position": each.position,
                "epoch": each.epoch,
                "member_id": holders[segment],
                "lag": lag.unread.get(segment, 0),
            }
            for segment, each in sorted(progress.segments.items())
        ],
    }
