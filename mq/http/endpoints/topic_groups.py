"""Topic groups: create, extend, configure, list, describe, delete."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from filer.errors import UnreadableObject
from mq.broker import Broker
from mq.http.endpoints.topics import describe, differences
from mq.http.hidden_names import hidden_names
from mq.http.json_body import parse_object
from mq.http.principals import principal_of
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import DELETE_TOPIC_GROUP, GET_TOPIC_GROUP, LIST_TOPIC_GROUPS, PUT_TOPIC_GROUP
from mq.security.principal import Principal
from mq.topic.topic_runtime import TopicRuntime


def topic_groups_router(broker: Broker) -> APIRouter:
    """Endpoints of topic groups."""
    router = new_router("topic groups")

    @router.serves(PUT_TOPIC_GROUP)
    async def put_topic_group(request: Request, group: str) -> Response:
        """Create a topic group (201), or add topics to it and change its settings (200).

        Beside `topics` and `splittable`, settings of a topic may be given. What counts only at creation is ignored if
        the group exists, and topics that are not named stay; `differs` lists both. A repeat of an interrupted request
        goes on where that stopped.
        """
        settings = await parse_object(request, '{"topics": ["orders", "payments"]}', empty=b"{}")
        principal = principal_of(request)
        named = settings.get("topics")
        topics = [topic for topic in named if isinstance(topic, str)] if isinstance(named, list) else []
        if (hidden := hidden_names(request.scope)) is not None:
            hidden.add(topics)
        for topic in topics:
            principal.require("manage", topic)
        runtime, put = await broker.topic_groups.put(group, settings)
        document = await _describe(broker, runtime, principal)
        return json_response(
            document | {"created": put.created, "differs": differences(put)}, status=201 if put.created else 200
        )

    @router.serves(LIST_TOPIC_GROUPS)
    async def list_topic_groups(
        request: Request, after: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> Response:
        """List the topic groups that one may observe by name, a page at a time, with the topics that one may."""
        listed = await _listed(broker, principal_of(request), after, limit + 1)
        page = listed[:limit]
        return json_response({"topic_groups": page, "next": page[-1]["group"] if len(listed) > limit else None})

    @router.serves(GET_TOPIC_GROUP)
    async def get_topic_group(request: Request, group: str) -> Response:
        """Describe a topic group: its topics, its configuration and its segments."""
        runtime = await broker.topic_groups.group(group)
        return json_response(await _describe(broker, runtime, principal_of(request)))

    @router.serves(DELETE_TOPIC_GROUP)
    async def delete_topic_group(group: str) -> Response:
        """Delete a topic group with all its topics. Its files are deleted after the grace period."""
        await broker.patience.wait(broker.topic_groups.delete(group), f"the deletion of topic group {group!r}")
        return Response(status_code=204)

    return router


async def _listed(broker: Broker, principal: Principal, after: str | None, most: int) -> list[dict[str, Any]]:
    """At most so many topic groups behind a name that the principal may observe, each with the topics that it may."""
    listed: list[dict[str, Any]] = []
    for name in filter(principal.sees, await broker.catalogue.names(after=after)):
        if len(listed) == most:
            break
        try:
            record = await broker.catalogue.read(name)
        except UnreadableObject:
            continue  # GET /v1/topics names it
        grouping = None if record is None or record.state.deleted else record.state.group
        if record is not None and grouping is not None:
            listed.append(
                {
                    "group": name,
                    "topics": [topic for topic in grouping.topics if principal.sees(topic)],
                    "splittable": grouping.splittable,
                    "segments": len(record.state.open_segments),
                    "version": record.state.version,
                }
            )
    return listed


async def _describe(broker: Broker, runtime: TopicRuntime, principal: Principal) -> dict[str, Any]:
    """A group as answers show it: the topic that it is stored as, and its members that the principal may observe."""
    grouping = runtime.state.group
    assert grouping is not None
    pending = await broker.topic_groups.pending(runtime)
    described = await describe(broker, runtime)
    del described["topic"]
    topics = sorted(set(grouping.topics) - set(pending))
    return {
        "group": runtime.topic,
        "topics": [topic for topic in topics if principal.sees(topic)],
        "pending": [topic for topic in pending if principal.sees(topic)],
        "splittable": grouping.splittable,
        **described,
    }
