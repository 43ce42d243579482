"""Calls of a member of a stream group."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import orjson
import pyarrow as pa

from braidmq.errors import MemberFenced, NoConnection, NotABroker, NotFound
from braidmq.message import Message, messages_of
from braidmq.names import group_path
from braidmq.read.segment_pages import SegmentPage, segment_page
from braidmq.transport.problems import address_of, json_of
from braidmq.transport.retry import Retry
from braidmq.transport.transport import Call, Transport, Try

_JSON = {"content-type": "application/json"}


class Under(NamedTuple):
    """A segment, and the epoch under which a member has it."""

    segment: int
    epoch: int


class Told(NamedTuple):
    """A broker's answer to a member: its identity, its segments with their positions, and those it is to release."""

    member_id: str
    member_epoch: int
    session_seconds: float
    heartbeat_seconds: float
    segments: dict[Under, int]
    release: set[Under]


class MemberCalls:
    """All calls of a member of one group; the member is the `process` of that name. All may be repeated.

    `may_have_joined`: a join was sent, and its answer is not known.
    """

    def __init__(self, transport: Transport, topic: str, group: str, process: str) -> None:
        self.transport, self.topic, self.group = transport, topic, group
        self._path, self._process = group_path(topic, group), process
        self.may_have_joined = False

    async def join(self, member_id: str, *, retry: Retry) -> Told:
        """Start, or start again. Raises `TopicNotFound`, and `Conflict` for a queue group."""
        call = self._post("members", {"member_id": member_id, "process": self._process})

        async def send(attempt: Try) -> httpx.Response:
            before, self.may_have_joined = self.may_have_joined, True
            try:
                return await self.transport.once(call, attempt)
            except NoConnection:
                self.may_have_joined = before  # nothing was sent
                raise

        told = _told(await self.transport.repeat(send, retry=retry))
        self.may_have_joined = False
        return told

    async def beat(
        self,
        told: Told,
        *,
        holds: Iterable[Under],
        released: Iterable[Under],
        wait_seconds: float,
        retry: Retry,
    ) -> Told:
        """Send a heartbeat, and wait for something else to hold.

        Raises `MemberFenced` if that start is over, `MemberReplaced` if another process has made the next one.
        """
        body = {
            "member_epoch": told.member_epoch,
            "segments": [each._asdict() for each in holds],
            "released": [each._asdict() for each in released],
            "wait": wait_seconds,
            "process": self._process,
        }
        call = self._post(f"members/{quote(told.member_id, safe='')}/heartbeats", body, wait_seconds=wait_seconds)
        return _told(await self.transport.request(call, retry=retry))

    async def commit(self, member_id: str, positions: Mapping[Under, int], *, retry: Retry) -> set[Under]:
        """Commit positions, durably; returns the segments that other members have by now."""
        named = [{**each._asdict(), "position": position} for each, position in positions.items()]
        call = self._post("commits", {"member_id": member_id, "positions": named})
        try:
            answer = json_of(await self.transport.request(call, retry=retry))
        except MemberFenced:
            return set(positions)
        return {Under(each["segment"], each["epoch"]) for each in answer["fenced"]}

    async def leave(self, told: Told, *, retry: Retry) -> None:
        """Leave the group: its segments are free at once."""
        target = f"{self._path}/members/{quote(told.member_id, safe='')}"
        try:
            call = Call("DELETE", target, params={"member_epoch": told.member_epoch})
            await self.transport.request(call, retry=retry)
        except (MemberFenced, NotFound):
            pass  # it is no member any more

    async def read(self, segment: int, offset: int, *, limit: int, wait_seconds: float, retry: Retry) -> SegmentPage:
        """The next messages of a segment; wait so long for a first one."""
        return await segment_page(
            self.transport, self.topic, segment, offset, limit=limit, wait_seconds=wait_seconds, retry=retry
        )

    def messages(self, page: pa.Table) -> Sequence[Message]:
        """The rows as messages."""
        return messages_of(self.topic, page)

    def _post(self, target: str, body: Mapping[str, Any], *, wait_seconds: float = 0.0) -> Call:
        return Call(
            "POST", f"{self._path}/{target}", content=orjson.dumps(body), headers=_JSON, wait_seconds=wait_seconds
        )


def _told(response: httpx.Response) -> Told:
    answer = json_of(response)
    try:
        return Told(
            answer["member_id"],
            answer["member_epoch"],
            float(answer["session_seconds"]),
            float(answer["heartbeat_seconds"]),
            {Under(each["segment"], each["epoch"]): each["position"] for each in answer["segments"]},
            {Under(each["segment"], each["epoch"]) for each in answer["release"]},
        )
    except (KeyError, TypeError, ValueError) as failure:
        raise NotABroker(f"{address_of(response)} gave an unexpected answer: {failure!r}") from failure
