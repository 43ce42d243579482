"""Calls about topics, segments, files and brokers: every call that carries no messages."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import orjson
from pydantic import BaseModel, ValidationError

from braidmq.errors import NotABroker, NotFound, TopicGroupNotFound, TopicNotFound
from braidmq.json_rows.plain_values import value_json
from braidmq.models import (
    BrokerDrain,
    Cluster,
    ClusterPolicy,
    GroupSummary,
    Route,
    Segment,
    SegmentFile,
    SegmentLife,
    Topic,
    TopicGroup,
    TopicGroupSummary,
    TopicPosition,
    TopicSummary,
    UnusableTopic,
)
from braidmq.names import topic_group_path, topic_path
from braidmq.transport.problems import address_of, json_of
from braidmq.transport.retry import Retry
from braidmq.transport.transport import Call, Transport, Try

Model = TypeVar("Model", bound=BaseModel)

_PAGE = 1000
_POLICY = "/v1/cluster/policy"


class Admin:
    """Administration calls. All of them may be repeated, so all are retried."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create_topic(self, topic: str, settings: Mapping[str, Any], *, exist_ok: bool) -> Topic:
        """Create the topic, or change its configuration if it exists and that is ok."""
        headers = {"content-type": "application/json"}
        if not exist_ok:
            headers["if-none-match"] = "*"
        call = Call("PUT", topic_path(topic), content=value_json(dict(settings)), headers=headers)
        response = await self._transport.request(call)
        # A broker before this version reports it by the status alone.
        return _parse(Topic, {"created": response.status_code == HTTPStatus.CREATED, **json_of(response)}, response)

    async def topic(self, topic: str, *, retry: Retry | None = None) -> Topic:
        """Return one topic."""
        return _read(Topic, await self._transport.request(Call("GET", topic_path(topic)), retry=retry))

    async def topics(
        self, after: str | None, *, internal: bool = False
    ) -> tuple[list[TopicSummary], list[UnusableTopic], str | None]:
        """Return a page of topics, ordered by name, its unusable topics, and where the next page begins."""
        params: dict[str, str | int] = {"limit": _PAGE}
        if after is not None:
            params["after"] = after
        if internal:
            params["internal"] = "true"
        response = await self._transport.request(Call("GET", "/v1/topics", params=params))
        answer = json_of(response)
        return (
            [_parse(TopicSummary, each, response) for each in answer["topics"]],
            [_parse(UnusableTopic, each, response) for each in answer.get("unusable", ())],
            answer.get("next"),
        )

    async def groups(self, topic: str, after: str | None) -> tuple[list[GroupSummary], str | None]:
        """Return a page of a topic's groups, ordered by name, and where the next one begins. Raises `TopicNotFound`."""
        params: dict[str, str | int] = {"limit": _PAGE} | ({} if after is None else {"after": after})
        response = await self._transport.request(Call("GET", f"{topic_path(topic)}/groups", params=params))
        answer = json_of(response)
        return [_parse(GroupSummary, each, response) for each in answer["groups"]], answer.get("next")

    async def delete_topic(self, topic: str) -> None:
        """Delete the topic. Raises `TopicNotFound`."""
        await self._delete(topic_path(topic), TopicNotFound)

    async def _delete(self, path: str, not_found: type[NotFound]) -> None:
        tries = 0

        async def delete(attempt: Try) -> None:
            nonlocal tries
            tries += 1
            try:
                await self._transport.once(Call("DELETE", path), attempt)
            except not_found:
                # If an earlier try's answer was lost, that try has deleted the topic.
                if tries == 1:
                    raise

        await self._transport.repeat(delete)

    async def put_topic_group(self, group: str, settings: Mapping[str, Any]) -> TopicGroup:
        """Create a topic group, or add topics to it and change its settings."""
        headers = {"content-type": "application/json"}
        call = Call("PUT", topic_group_path(group), content=value_json(dict(settings)), headers=headers)
        return _read(TopicGroup, await self._transport.request(call))

    async def topic_group(self, group: str) -> TopicGroup:
        """Return one topic group."""
        return _read(TopicGroup, await self._transport.request(Call("GET", topic_group_path(group))))

    async def topic_groups(self, after: str | None) -> tuple[list[TopicGroupSummary], str | None]:
        """Return a page of topic groups, ordered by name, and where the next page begins."""
        params: dict[str, str | int] = {"limit": _PAGE} | ({} if after is None else {"after": after})
        response = await self._transport.request(Call("GET", "/v1/topic-groups", params=params))
        answer = json_of(response)
        return [_parse(TopicGroupSummary, each, response) for each in answer["topic_groups"]], answer.get("next")

    async def delete_topic_group(self, group: str) -> None:
        """Delete a topic group with its topics. Raises `TopicGroupNotFound`."""
        await self._delete(topic_group_path(group), TopicGroupNotFound)

    async def route(self, topic: str, *, retry: Retry | None = None, timeout_seconds: float | None = None) -> Route:
        """Return the open segments and their owners."""
        call = Call("GET", f"{topic_path(topic)}/route", timeout_seconds=timeout_seconds)
        return _read(Route, await self._transport.request(call, retry=retry))

    async def split_segment(
        self, topic: str, segment: int, at: Sequence[int] | None, parts: int | None
    ) -> tuple[Segment, ...]:
        """Split an open segment. A repeated call returns the same successors."""
        fields = {"at": None if at is None else list(at), "parts": parts}
        return await self._replace_segment(topic, segment, "split", {k: v for k, v in fields.items() if v is not None})

    async def merge_segments(self, topic: str, segment: int, other: int) -> Segment:
        """Merge two open neighbours. A repeated call returns the same successor."""
        (successor,) = await self._replace_segment(topic, segment, "merge", {"with": other})
        return successor

    async def _replace_segment(
        self, topic: str, segment: int, action: str, body: Mapping[str, Any]
    ) -> tuple[Segment, ...]:
        target = f"{topic_path(topic)}/segments/{segment}/{action}"
        call = Call("POST", target, content=orjson.dumps(body), headers={"content-type": "application/json"})
        response = await self._transport.request(call)
        return tuple(_parse(Segment, each, response) for each in json_of(response)["segments"])

    async def history(self, topic: str, after: int | None) -> tuple[list[SegmentLife], int | None]:
        """Return a page of all segments that the topic has had, ordered by id, and where the next page begins."""
        params: dict[str, str | int] = {} if after is None else {"after": after}
        response = await self._transport.request(Call("GET", f"{topic_path(topic)}/history", params=params))
        answer = json_of(response)
        return [_parse(SegmentLife, each, response) for each in answer["segments"]], answer.get("next")

    async def cluster(self, *, retry: Retry | None = None, timeout_seconds: float | None = None) -> Cluster:
        """Return the brokers, the leader and the transitions."""
        call = Call("GET", "/v1/cluster", timeout_seconds=timeout_seconds)
        return _read(Cluster, await self._transport.request(call, retry=retry))

    async def policy(self) -> ClusterPolicy:
        """Return the policy."""
        return _policy(await self._transport.request(Call("GET", _POLICY)))

    async def set_policy(self, policy: Mapping[str, Any], etag: str) -> ClusterPolicy:
        """Replace the policy that has this ETag. A repeated call finds that it has been done."""
        headers = {"content-type": "application/json", "if-match": etag}
        call = Call("PUT", _POLICY, content=orjson.dumps(dict(policy)), headers=headers)
        return _policy(await self._transport.request(call))

    async def drain_broker(self, broker: str) -> BrokerDrain:
        """Make a broker hand over everything that it owns. Raises `NotFound`."""
        call = Call("POST", f"/v1/cluster/brokers/{quote(broker, safe='')}/drain")
        return _read(BrokerDrain, await self._transport.request(call))

    async def undrain_broker(self, broker: str) -> BrokerDrain:
        """Let a drained broker own segments again. Raises `NotFound`."""
        call = Call("DELETE", f"/v1/cluster/brokers/{quote(broker, safe='')}/drain")
        return _read(BrokerDrain, await self._transport.request(call))

    async def files(
        self, topic: str, start: Mapping[str, str], after: str | None
    ) -> tuple[list[SegmentFile], str | None]:
        """Return a page of live segment files, and where the next page begins."""
        params = dict(start) if after is None else {**start, "after": after}
        response = await self._transport.request(Call("GET", f"{topic_path(topic)}/files", params=params))
        answer = json_of(response)
        return [_parse(SegmentFile, each, response) for each in answer["files"]], answer.get("next")

    async def segment_files(
        self, topic: str, segment: int, offset: int, end_offset: int | None
    ) -> tuple[list[SegmentFile], int | None]:
        """Return a page of the live files of one segment that hold these offsets, and where the next page begins."""
        params = {"offset": offset} if end_offset is None else {"offset": offset, "end_offset": end_offset}
        call = Call("GET", f"{topic_path(topic)}/segments/{segment}/files", params=params)
        response = await self._transport.request(call)
        answer = json_of(response)
        return [_parse(SegmentFile, each, response) for each in answer["files"]], answer.get("next_offset")

    async def position(self, topic: str, start: Mapping[str, str]) -> TopicPosition:
        """Return the offset of each segment at that position."""
        return _read(
            TopicPosition,
            await self._transport.request(Call("GET", f"{topic_path(topic)}/positions", params=dict(start))),
        )


def _policy(response: httpx.Response) -> ClusterPolicy:
    return _parse(ClusterPolicy, {**json_of(response), "etag": response.headers.get("etag", "")}, response)


def _read(model: type[Model], response: httpx.Response) -> Model:
    return _parse(model, json_of(response), response)


def _parse(model: type[Model], answer: Any, response: httpx.Response) -> Model:
    try:
        return model.model_validate(answer)
    except ValidationError as failure:
        raise NotABroker(f"{address_of(response)} gave an unexpected answer: {failure}") from failure
