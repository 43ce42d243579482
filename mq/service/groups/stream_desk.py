"""Serves the requests of members of stream groups, at the broker that coordinates the group."""

from collections.abc import Mapping, Sequence
from typing import Any

from filer.keys import check_name
from groups.stream.members import Told
from mq.base.errors import Conflict
from mq.broker import Broker
from mq.forms.group_bodies import CommitBody, HeartbeatBody, JoinBody, LeaveBody
from mq.groups.segment_groups import SegmentGroups
from mq.groups.stream_group import Commit, StreamGroup
from mq.limits.read_budget import ReadLease
from mq.service.groups.answers import Document
from mq.service.groups.finding import existing_group, made_group, stream_of
from mq.service.groups.handlers import Handler
from mq.service.groups.long_bodies import parsed_in_turns
from mq.service.groups.operations import COMMIT, HEARTBEAT, JOIN, LEAVE, Asked, Operation

BEATS_PER_SESSION = 3
"""Heartbeats per session. A member that sends so many may miss one."""


class StreamDesk:
    """Serves members of stream groups that this broker coordinates."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.handlers: Mapping[Operation[Any, Any], Handler] = {
            JOIN: self._join,
            HEARTBEAT: self._hear,
            LEAVE: self._leave,
            COMMIT: self._commit,
        }

    async def _join(self, groups: SegmentGroups, request: Asked[JoinBody], lease: ReadLease) -> Document:
        asked = request.body
        group = stream_of(await made_group(self._broker, groups, request, "stream"))
        await self._broker.topics.view(request.topic)
        member = self._broker.clock.ulid() if asked.member_id is None else _member_id(asked.member_id)
        start, told = await group.join(member, asked.process)
        return Document.of(_told(group, member, start, told), is_new=True)

    async def _hear(self, groups: SegmentGroups, request: Asked[HeartbeatBody], lease: ReadLease) -> Document:
        asked = request.body
        group = stream_of(await existing_group(self._broker, groups, request))
        await self._broker.topics.view(request.topic)
        told = await group.hear(
            asked.member_id,
            asked.member_epoch,
            released=[(each.segment, each.epoch) for each in asked.released],
            holds=[(each.segment, each.epoch) for each in asked.segments],
            # Bounded, so that a member that goes away during the wait does not keep its session for long.
            process=asked.process,
            wait_seconds=min(asked.wait, group.progress.settings.session_seconds / 2),
        )
        return Document.of(_told(group, asked.member_id, asked.member_epoch, told))

    async def _leave(self, groups: SegmentGroups, request: Asked[LeaveBody], lease: ReadLease) -> None:
        asked = request.body
        await stream_of(await existing_group(self._broker, groups, request)).leave(asked.member_id, asked.member_epoch)

    async def _commit(self, groups: SegmentGroups, request: Asked[bytes], lease: ReadLease) -> Document:
        asked = await parsed_in_turns(request.body, CommitBody, lease)
        group = stream_of(await existing_group(self._broker, groups, request))
        commits = [Commit(each.segment, each.epoch, each.position) for each in asked.positions]
        accepted = await group.commit(asked.member_id, commits)
        if all(each is None for each in accepted):
            raise Conflict("member-fenced", await _why_none_counts(group, asked.member_id, commits))
        outcomes = list(zip(commits, accepted, strict=True))
        return Document.of(
            {
                "committed": [
                    each._asdict() | {"in_force": in_force} for each, in_force in outcomes if in_force is not None
                ],
                "fenced": [each._asdict() for each, in_force in outcomes if in_force is None],
            }
        )


async def _why_none_counts(group: StreamGroup, member: str, commits: Sequence[Commit]) -> str:
    """Why no position has moved. A segment may be unknown only here, so the member is only asked to join again."""
    state = (await group.source.runtime()).state
    for segment in (each.segment for each in commits):
        if state.segment(segment) is None and segment not in group.progress.segments:
            return f"topic {group.topic!r} has no segment {segment}, so no position has moved: join again"
    return (
        f"none of these segments is with member {member!r} under that epoch any more, and no position has moved: "
        "whoever has them now goes on from the last commit that was accepted"
    )


def _member_id(name: str) -> str:
    return check_name(name, what="member")


def _told(group: StreamGroup, member: str, start: int, told: Told) -> dict[str, Any]:
    """What a member must know. It reads each segment that it holds from `position` on."""
    session_seconds = group.progress.settings.session_seconds
    return {
        "member_id": member,
        "member_epoch": start,
        "session_seconds": session_seconds,
        "heartbeat_seconds": round(session_seconds / BEATS_PER_SESSION, 3),
        "segments": [each._asdict() for each in told.holds],
        "release": [{"segment": segment, "epoch": epoch} for segment, epoch in told.release],
    }
