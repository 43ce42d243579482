"""Calls about one consumer group."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import orjson
from pydantic import BaseModel, ValidationError

from braidmq.consume.decisions import Ack, Part, Request, Taken, taken_of
from braidmq.errors import ClaimLost, GroupNotFound, NotABroker
from braidmq.models import GroupDescription, GroupMessage
from braidmq.names import group_path
from braidmq.transport.problems import address_of, json_of
from braidmq.transport.retry import Retry
from braidmq.transport.transport import ARROW, Call, Transport, Try

if TYPE_CHECKING:
    from braidmq.consume.claims import ClaimedMessages

_Model = TypeVar("_Model", bound=BaseModel)
_JSON = {"content-type": "application/json"}


class GroupCalls:
    """All calls about a group. All may be repeated: a repeated ack gets the same answer as the first.

    A repeated release does not: the first has ended the claim, so the answer to the second is that the claim is lost.
    """

    def __init__(self, transport: Transport, topic: str, group: str) -> None:
        self.transport, self.topic, self.group = transport, topic, group
        self._path = group_path(topic, group)

    async def put(self, settings: Mapping[str, Any]) -> GroupDescription:
        """Create the group, or change its settings. Raises `TopicNotFound` and `InvalidConfig`."""
        call = Call("PUT", self._path, content=orjson.dumps(dict(settings)), headers=_JSON)
        response = await self.transport.request(call)
        return _description(response, created=response.status_code == HTTPStatus.CREATED)

    async def describe(self, *, retry: Retry | None = None) -> GroupDescription:
        """Return the group. Raises `GroupNotFound`."""
        return _description(await self.transport.request(Call("GET", self._path), retry=retry))

    async def messages(self, state: str, after: str | None, limit: int) -> tuple[list[GroupMessage], str | None]:
        """Return a page of messages in that state, and which one the next page follows. Raises `GroupNotFound`."""
        params: dict[str, str | int] = {"state": state, "limit": limit}
        if after is not None:
            params["after"] = after
        response = await self.transport.request(Call("GET", f"{self._path}/messages", params=params))
        answer = json_of(response)
        return [_parsed(GroupMessage, each, response) for each in answer["messages"]], answer["next"]

    async def redrive(self, chosen: Mapping[str, Any]) -> tuple[int, bool]:
        """Redrive dead letters, or discard them; returns how many, and whether there are more."""
        call = Call("POST", f"{self._path}/redrive", content=orjson.dumps(dict(chosen)), headers=_JSON)
        answer = json_of(await self.transport.request(call))
        return answer["discarded" if chosen["discard"] else "redriven"], answer.get("more", False)

    async def reset(self, begin: Mapping[str, Any]) -> GroupDescription:
        """Make the group begin anew. Raises `GroupNotFound`, and `Conflict` while it is used."""
        call = Call("POST", f"{self._path}/reset", content=orjson.dumps(dict(begin)), headers=_JSON)
        return _description(await self.transport.request(call))

    async def delete(self) -> None:
        """Delete the group. Raises `GroupNotFound`."""
        tries = 0

        async def delete(attempt: Try) -> None:
            nonlocal tries
            tries += 1
            try:
                await self.transport.once(Call("DELETE", self._path), attempt)
            except GroupNotFound:
                # If an earlier try's answer was lost, that try has deleted it.
                if tries == 1:
                    raise

        await self.transport.repeat(delete)

    async def claim(
        self, most: int, *, wait_seconds: float, lease_seconds: float | None, consumer: str, retry: Retry | None
    ) -> "ClaimedMessages":
        """Claim messages; wait so long for a first one. A lost answer costs a lease: its messages wait that long."""
        # Imported here: calls about groups themselves need no Arrow.
        from braidmq.consume.claims import claimed_messages

        body: dict[str, Any] = {"max": most, "wait": wait_seconds, "consumer": consumer}
        if lease_seconds is not None:
            body["lease_seconds"] = lease_seconds
        call = Call(
            "POST",
            f"{self._path}/claims",
            content=orjson.dumps(body),
            headers=_JSON | {"accept": ARROW},
            wait_seconds=wait_seconds,
        )
        return claimed_messages(self.topic, await self.transport.request(call, retry=retry))

    async def decide(self, request: Request, *, retry: Retry | None) -> set[Taken]:
        """Ack or release messages, and return those that this consumer no longer had.

        If a release was sent before, without an answer, it is unknown whether it came too late: then none is returned.
        Either way the group has the messages again.
        """
        if isinstance(request.outcome, Ack):
            return await self._told("acks", {}, request.parts, retry)
        lost = await self._told("releases", request.outcome.body, request.parts, retry, on_try=request.count_try)
        return lost if request.tries == 1 else set()

    async def extend(self, parts: Sequence[Part], lease_seconds: float | None, *, retry: Retry | None) -> set[Taken]:
        """Make leases run for `lease_seconds` from now on (None: the group's own); returns as `decide`."""
        body = {} if lease_seconds is None else {"lease_seconds": lease_seconds}
        return await self._told("extensions", body, parts, retry)

    async def _told(
        self,
        verb: str,
        body: Mapping[str, Any],
        parts: Sequence[Part],
        retry: Retry | None,
        *,
        on_try: Callable[[], None] | None = None,
    ) -> set[Taken]:
        content = orjson.dumps({"messages": [part.body for part in parts], **body})
        call = Call("POST", f"{self._path}/{verb}", content=content, headers=_JSON)

        async def send(attempt: Try) -> httpx.Response:
            if on_try is not None:
                on_try()
            return await self.transport.once(call, attempt)

        try:
            answer = json_of(await self.transport.repeat(send, retry=retry))
        except ClaimLost:
            return set(taken_of(parts))
        return {
            Taken(result["claim"], offset)
            for result in answer["results"]
            for start, stop in result["lost"]
            for offset in range(start, stop)
        }


def _description(response: httpx.Response, **more: Any) -> GroupDescription:
    return _parsed(GroupDescription, json_of(response) | more, response)


def _parsed(model: type[_Model], document: Any, response: httpx.Response) -> _Model:
    try:
        return model.model_validate(document)
    except ValidationError as failure:
        raise NotABroker(f"{address_of(response)} gave an unexpected answer: {failure}") from failure
