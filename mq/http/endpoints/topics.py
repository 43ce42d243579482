"""Topics: create, configure, list, describe, delete, and the route to their owners."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from filer.errors import InvalidInput, StoreError, UnreadableObject
from filer.keys import is_internal
from filer.times import rfc3339
from filer.topic.topic_state import Segment, TopicState
from mq.administration.topic_administration import Put
from mq.base.errors import repeatable
from mq.broker import Broker
from mq.forms.formats import JSON
from mq.forms.shallow_json import object_of
from mq.http.endpoints.payload_upload import chunks_of
from mq.http.json_body import gathered, read_body
from mq.http.principals import principal_of
from mq.http.problems import problem_of
from mq.http.reply import Reply, json_response
from mq.http.routers import new_router
from mq.http.routes import DELETE_TOPIC, GET_ROUTE, GET_TOPIC, LIST_TOPICS, PUT_TOPIC
from mq.peers.traffic_report import ShownTraffic
from mq.security.principal import Principal
from mq.topic.lost_objects import SHOWN
from mq.topic.topic_runtime import TopicRuntime

_UNKNOWN = ShownTraffic(None, None)
_CONDITION = "if-none-match"
_HEADER = {
    "parameters": [
        {
            "name": "If-None-Match",
            "in": "header",
            "description": "Leave a topic that exists alone (412).",
            "schema": {"type": "string", "enum": ["*"]},
        }
    ]
}


def topics_router(broker: Broker) -> APIRouter:
    """Endpoints of topics themselves."""
    router, put = new_router("topics"), PutTopic(broker)

    @router.serves(PUT_TOPIC, openapi_extra=_HEADER)
    async def put_topic(request: Request, topic: str) -> Response:
        """Create a topic (201), or change its configuration (200). Only the given settings change.

        What counts only at creation is ignored if the topic exists; `differs` lists it. With `If-None-Match: *` a topic
        that exists is left alone (412).
        """
        reply = await put.reply(topic, await read_body(request), request.headers.get(_CONDITION))
        return Response(reply.body, reply.status, media_type=JSON)

    @router.serves(LIST_TOPICS)
    async def list_topics(
        request: Request,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        internal: bool = False,
    ) -> Response:
        """List the topics that one may observe by name, a page at a time; `unusable` are those whose record cannot be
        used.

        Members of topic groups are listed as well, with the name of their `group`, whose segments they share.

        Names that begin with `__` are left out without `internal=true`, unless they are unusable.
        """
        listed = await _listed(broker, principal_of(request), after, limit + 1, internal=internal)
        page = listed[:limit]
        return json_response(
            {
                "topics": [each for each in page if "problem" not in each],
                "unusable": [each for each in page if "problem" in each],
                "next": page[-1]["topic"] if len(listed) > limit else None,
            }
        )

    @router.serves(GET_TOPIC)
    async def get_topic(request: Request, topic: str) -> Response:
        """Describe a topic: its configuration and its segments; of a member, those of its topic group."""
        view = await broker.topics.view(topic)
        described = await describe(broker, view.runtime)
        if not principal_of(request).sees(view.runtime.topic):
            # The names of objects contain that of the topic group.
            return json_response(described | {"topic": topic, "damaged": []})
        grouped = {"group": view.runtime.topic} if view.state.is_grouped else {}
        return json_response(described | {"topic": topic, **grouped})

    @router.serves(DELETE_TOPIC)
    async def delete_topic(topic: str) -> Response:
        """Delete a topic. Its files are deleted after the grace period."""
        await broker.patience.wait(broker.administration.delete(topic), f"the deletion of topic {topic!r}")
        return Response(status_code=204)

    @router.serves(GET_ROUTE)
    async def route(topic: str) -> Response:
        """List the open segments and the addresses of their owners."""
        state = (await broker.topics.view(topic)).state
        urls = {info.id: info.url for info in broker.coordinator.brokers()}
        segments = [
            {"segment": s.id, "range": list(s.range), "owner": {"broker": s.owner, "url": urls.get(s.owner)}}
            for s in state.open_segments
        ]
        return json_response({"topic": topic, "version": state.version, "segments": segments})

    return router


class PutTopic:
    """`PUT /v1/topics/{topic}` without parameters, for the dispatcher, and the work behind it, for FastAPI too.

    FastAPI takes a third of the time of a request that creates a topic. It gets requests with parameters, and refuses
    them.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, topic: str) -> Reply:
        """Serve a request. Raises errors that `problem_of` can answer, and `ClientGone`."""
        body = await gathered(chunks_of(receive), scope)
        try:
            return await self.reply(topic, body, Headers(scope=scope).get(_CONDITION))
        except StoreError as error:
            raise repeatable(error) from error

    async def reply(self, topic: str, body: bytes, condition: str | None) -> Reply:
        """The answer to a body, and to the condition of its request, if it has one. Raises as `__call__`."""
        settings = object_of(body or b"{}", '{"segments": 4}')
        runtime, put = await self._broker.administration.put(topic, settings, only_new=_wants_new(condition))
        document = await describe(self._broker, runtime)
        document |= {"created": put.created, "differs": differences(put)}
        return Reply(orjson.dumps(document), 201 if put.created else 200)


def _wants_new(condition: str | None) -> bool:
    """Whether the request wants a new topic. Raises `InvalidInput` for a condition that topics do not have."""
    if condition is not None and condition.strip() != "*":
        raise InvalidInput(
            f"If-None-Match: a topic has no versions to name, only * can be given, not {condition!r:.80}"
        )
    return condition is not None


async def _listed(
    broker: Broker, principal: Principal, after: str | None, most: int, *, internal: bool
) -> list[dict[str, Any]]:
    """At most so many topics behind a name that the principal may observe; unusable ones have a `problem`."""
    listed: list[dict[str, Any]] = []
    groups: dict[str, TopicState | None] = {}
    for name in filter(principal.sees, await broker.catalogue.names(after=after)):
        if len(listed) == most:
            break
        try:
            record = await broker.catalogue.read(name)
            group = None if record is None else await _group_of(broker, record.state, groups)
        except UnreadableObject as error:
            listed.append({"topic": name, "problem": problem_of(error).slug, "key": error.key})
            continue
        if record is None or (record.state.deleted and group is None) or (is_internal(name) and not internal):
            continue
        state = group or record.state
        listed.append(
            {"topic": name, "segments": len(state.open_segments), "version": state.version}
            | ({} if state.group is None or not principal.sees(state.topic) else {"group": state.topic})
        )
    return listed


async def _group_of(broker: Broker, state: TopicState, known: dict[str, TopicState | None]) -> TopicState | None:
    """The group of which a record's topic is a member; None if there is none. `known` has the groups read so far."""
    member_of = state.member_of
    if member_of is None:
        return None
    if member_of.group not in known:
        record = await broker.catalogue.read(member_of.group)
        known[member_of.group] = None if record is None else record.state
    group = known[member_of.group]
    return group if group is not None and group.has_member(member_of) else None


def differences(put: Put) -> dict[str, Any]:
    """The wishes of a request that were ignored, as answers show them."""
    return {name: {"wanted": each.wanted, "actual": each.actual} for name, each in put.differs.items()}


async def describe(broker: Broker, runtime: TopicRuntime) -> dict[str, Any]:
    """A topic as answers show it (docs/design.md §11)."""
    state = runtime.state
    ends = await asyncio.gather(*(end_of(runtime, segment) for segment in state.segments))
    traffic = await broker.traffic_view.of(runtime.state, runtime.traffic)
    segments = [
        _segment(segment, end) | (_traffic(traffic.get(segment.id, _UNKNOWN)) if segment.state == "open" else {})
        for segment, end in zip(state.segments, ends, strict=True)
    ]
    return {
        "topic": state.topic,
        "config": state.config.model_dump(mode="json"),
        "version": state.version,
        "segments": segments,
        "damaged": damaged_objects(broker, runtime),
    }


def damaged_objects(broker: Broker, runtime: TopicRuntime) -> list[dict[str, Any]]:
    """The lost objects that readers of this broker have found, then those that the scrub of any broker has found."""
    read = runtime.lost.shown()
    keys = {each["key"] for each in read}
    return [*read, *(each for each in broker.scrubber.findings.shown(runtime.topic) if each["key"] not in keys)][:SHOWN]


async def end_of(runtime: TopicRuntime, segment: Segment) -> int:
    """The offset after a segment's last message: the number of messages that it has had."""
    return segment.end_offset if segment.end_offset is not None else await runtime.reads.end_of(segment.id)


def _segment(segment: Segment, end_offset: int) -> dict[str, Any]:
    return {
        **segment_shape(segment),
        "start_offset": segment.start_offset,
        "end_offset": end_offset,
        **given_up_of(segment),
    }


def given_up_of(segment: Segment) -> dict[str, Any]:
    """The parts of a segment that an operator has given up; no field if there are none."""
    if not segment.given_up:
        return {}
    shown = [
        {**each.model_dump(include={"offset", "next_offset", "key", "what"}), "since": rfc3339(each.since_us)}
        for each in segment.given_up
    ]
    return {"given_up": shown}


def segment_shape(segment: Segment) -> dict[str, Any]:
    """The fields of a segment that do not change with its messages."""
    return {
        "segment": segment.id,
        "range": list(segment.range),
        "state": segment.state,
        "predecessors": list(segment.predecessors),
        "successors": list(segment.successors),
        "brokers": list(segment.brokers),
    }


def _traffic(shown: ShownTraffic) -> dict[str, Any]:
    rates = None if shown.recent is None else {name: round(rate, 6) for name, rate in asdict(shown.recent).items()}
    return {"traffic": rates, "hot_slot": shown.hot_slot}
