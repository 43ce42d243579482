"""Topics, routes, files and the cluster: everything that carries no messages."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import orjson
from pydantic import BaseModel, ValidationError

from braidmq.errors import NotABroker, TopicNotFound
from braidmq.models import (
    BrokerDrain,
    Cluster,
    Route,
    Segment,
    SegmentFile,
    SegmentLife,
    Topic,
    TopicPosition,
    TopicSummary,
)
from braidmq.names import topic_path
from braidmq.problems import json_of
from braidmq.retry import Retry
from braidmq.transport import Call, Transport

Model = TypeVar("Model", bound=BaseModel)

_PAGE = 1000


class Admin:
    """Administration calls; all may be repeated, so all are where it helps."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create_topic(self, topic: str, config: Mapping[str, Any]) -> Topic:
        """Create the topic, or change its configuration where it exists."""
        body = orjson.dumps(dict(config))
        headers = {"content-type": "application/json"}
        call = Call("PUT", topic_path(topic), content=body, headers=headers)
        return _read(Topic, await self._transport.request(call))

    async def topic(self, topic: str, *, retry: Retry | None = None) -> Topic:
        """One topic."""
        return _read(Topic, await self._transport.request(Call("GET", topic_path(topic)), retry=retry))

    async def topics(self, after: str | None) -> tuple[list[TopicSummary], str | None]:
        """A page of topics by name, and where the next one begins."""
        params: dict[str, str | int] = {"limit": _PAGE} if after is None else {"limit": _PAGE, "after": after}
        response = await self._transport.request(Call("GET", "/v1/topics", params=params))
        answer = json_of(response)
        return [_parse(TopicSummary, each, response) for each in answer["topics"]], answer.get("next")

    async def delete_topic(self, topic: str) -> None:
        """Delete the topic; raises `TopicNotFound` where there is none."""
        tries = 0

        async def attempt(address: str) -> None:
            nonlocal tries
            tries += 1
            try:
                await self._transport.once(Call("DELETE", topic_path(topic)), address)
            except TopicNotFound:
                # After a try whose answer was lost it is that try which has deleted it.
                if tries == 1:
                    raise

        await self._transport.repeat(attempt)

    async def route(self, topic: str, *, retry: Retry | None = None, timeout_seconds: float | None = None) -> Route:
        """The open segments and their owners."""
        call = Call("GET", f"{topic_path(topic)}/route", timeout_seconds=timeout_seconds)
        return _read(Route, await self._transport.request(call, retry=retry))

    async def split_segment(
        self, topic: str, segment: int, at: Sequence[int] | None, parts: int | None
    ) -> tuple[Segment, ...]:
        """Split an open segment; the same again is answered with the same successors."""
        fields = {"at": None if at is None else list(at), "parts": parts}
        return await self._reshape(topic, segment, "split", {k: v for k, v in fields.items() if v is not None})

    async def merge_segments(self, topic: str, segment: int, other: int) -> Segment:
        """Merge two open neighbours; the same again is answered with the same successor."""
        (successor,) = await self._reshape(topic, segment, "merge", {"with": other})
        return successor

    async def _reshape(self, topic: str, segment: int, how: str, body: Mapping[str, Any]) -> tuple[Segment, ...]:
        target = f"{topic_path(topic)}/segments/{segment}/{how}"
        call = Call("POST", target, content=orjson.dumps(body), headers={"content-type": "application/json"})
        response = await self._transport.request(call)
        return tuple(_parse(Segment, each, response) for each in json_of(response)["segments"])

    async def history(self, topic: str, after: int | None) -> tuple[list[SegmentLife], int | None]:
        """A page of the segments that the topic has had, by id, and where the next one begins."""
        params: dict[str, str | int] = {} if after is None else {"after": after}
        response = await self._transport.request(Call("GET", f"{topic_path(topic)}/history", params=params))
        answer = json_of(response)
        return [_parse(SegmentLife, each, response) for each in answer["segments"]], answer.get("next")

    async def cluster(self, *, retry: Retry | None = None, timeout_seconds: float | None = None) -> Cluster:
        """The brokers and the leader."""
        call = Call("GET", "/v1/cluster", timeout_seconds=timeout_seconds)
        return _read(Cluster, await self._transport.request(call, retry=retry))

    async def drain_broker(self, broker: str) -> BrokerDrain:
        """Have a broker hand over what it owns; raises `NotFound`."""
        call = Call("POST", f"/v1/cluster/brokers/{quote(broker, safe='')}/drain")
        return _read(BrokerDrain, await self._transport.request(call))

    async def undrain_broker(self, broker: str) -> BrokerDrain:
        """Let a drained broker own segments again; raises `NotFound`."""
        call = Call("DELETE", f"/v1/cluster/brokers/{quote(broker, safe='')}/drain")
        return _read(BrokerDrain, await self._transport.request(call))

    async def files(
        self, topic: str, start: Mapping[str, str], after: str | None
    ) -> tuple[list[SegmentFile], str | None]:
        """A page of live segment files, and where the next one begins."""
        params = dict(start) if after is None else {**start, "after": after}
        response = await self._transport.request(Call("GET", f"{topic_path(topic)}/files", params=params))
        answer = json_of(response)
        return [_parse(SegmentFile, each, response) for each in answer["files"]], answer.get("next")

    async def segment_files(
        self, topic: str, segment: int, offset: int, end_offset: int | None
    ) -> tuple[list[SegmentFile], int | None]:
        """A page of the live files of one segment that hold those offsets, and where the next one begins."""
        params = {"offset": offset} if end_offset is None else {"offset": offset, "end_offset": end_offset}
        call = Call("GET", f"{topic_path(topic)}/segments/{segment}/files", params=params)
        response = await self._transport.request(call)
        answer = json_of(response)
        return [_parse(SegmentFile, each, response) for each in answer["files"]], answer.get("next_offset")

    async def position(self, topic: str, start: Mapping[str, str]) -> TopicPosition:
        """Where reading from there begins, segment by segment."""
        return _read(
            TopicPosition,
            await self._transport.request(Call("GET", f"{topic_path(topic)}/positions", params=dict(start))),
        )


def _read(model: type[Model], response: httpx.Response) -> Model:
    return _parse(model, json_of(response), response)


def _parse(model: type[Model], answer: Any, response: httpx.Response) -> Model:
    try:
        return model.model_validate(answer)
    except ValidationError as failure:
        raise NotABroker(f"{response.request.url} answered with something unexpected: {failure}") from failure
