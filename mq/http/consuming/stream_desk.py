"""Serves the requests of members of stream groups, at the broker that coordinates the group."""

from collections.abc import Mapping, Sequence
from typing import Any

from filer.keys import check_name
from groups.stream.members import Told
from mq.base.errors import Conflict
from mq.broker import Broker
from mq.forms.formats import JSON
from mq.forms.group_bodies import CommitBody, HeartbeatBody, JoinBody, LeaveBody
from mq.forms.json_form import M as Body
from mq.forms.json_form import checked_body
from mq.forms.shallow_json import object_of
from mq.groups.segment_groups import SegmentGroups
from mq.groups.stream_group import Commit, StreamGroup
from mq.http.consuming.decisions import decision_bytes, parsed_in_turns
from mq.http.consuming.finding import existing_group, made_group, stream_of
from mq.http.consuming.group_answer import GroupAnswer, Operation
from mq.limits.read_budget import ReadLease
from mq.peers.group_call import GroupRequest

BEATS_PER_SESSION = 3
"""Heartbeats per session. A member that sends so many may miss one."""


class StreamDesk:
    """Serves members of stream groups that this broker coordinates."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.operations: Mapping[str, Operation] = {
            "members": self._join,
            "heartbeats": self._hear,
            "leave": self._leave,
            "commits": self._commit,
        }

    async def _join(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        asked = _body(request, JoinBody)
        group = stream_of(await made_group(self._broker, groups, request, "stream"))
        await self._broker.topics.view(request.topic)
        member = self._broker.clock.ulid() if asked.member_id is None else _member_id(asked.member_id)
        start, told = await group.join(member, asked.process)
        return GroupAnswer.of(_told(group, member, start, told), 201)

    async def _hear(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        async with self._broker.decisions.held(decision_bytes(request.body)):
            asked = await parsed_in_turns(request.body, HeartbeatBody, lease)
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
        return GroupAnswer.of(_told(group, asked.member_id, asked.member_epoch, told))

    async def _leave(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        asked = _body(request, LeaveBody)
        await stream_of(await existing_group(self._broker, groups, request)).leave(asked.member_id, asked.member_epoch)
        return GroupAnswer(204, JSON, [])

    async def _commit(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupAnswer:
        asked = await parsed_in_turns(request.body, CommitBody, lease)
        group = stream_of(await existing_group(self._broker, groups, request))
        commits = [Commit(each.segment, each.epoch, each.position) for each in asked.positions]
        accepted = await group.commit(asked.member_id, commits)
        if all(each is None for each in accepted):
            raise Conflict("member-fenced", await _why_none_counts(group, asked.member_id, commits))
        outcomes = list(zip(commits, accepted, strict=True))
        return GroupAnswer.of(
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


def _body(request: GroupRequest, model: type[Body]) -> Body:
    return checked_body(object_of(request.body or b"{}", model.EXAMPLE), model)


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
