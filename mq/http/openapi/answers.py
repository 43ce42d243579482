"""The bodies of requests that no endpoint names, and the answers of all: for each route of the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from mq.forms.formats import ARROW, JSON, NDJSON, SSE
from mq.http import routes
from mq.http.openapi import cluster, files, groups, messages, topics
from mq.http.openapi.schemas import Schema, reference
from mq.http.routers import Body
from mq.http.routes import Route

BINARY: Schema = {"type": "string", "format": "binary"}
TEXT: Schema = {"type": "string"}
_MARKER = {"Braid-Marker": "Where the next page begins."}
_OFFSETS = {
    "Braid-Next-Offset": "Where the next page begins.",
    "Braid-End-Offset": "The end of the segment, once it is sealed.",
}
_ETAG = {"ETag": "The version, for `If-Match`."}
_LOCATION = {"Location": "The address."}


@dataclass(frozen=True, slots=True)
class Described:
    """An answer: a schema for each media type, and the headers of its own, each with what it says."""

    description: str
    content: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    models: Sequence[type[BaseModel]] = ()


def _json(*models: type[BaseModel], headers: Mapping[str, str] | None = None) -> Described:
    """A JSON object of one of the models."""
    refs = [reference(model) for model in models]
    description = (models[0].__doc__ or "").partition("\n")[0]
    return Described(description, {JSON: refs[0] if len(refs) == 1 else {"oneOf": refs}}, headers or {}, models)


def _lines(description: str, model: type[BaseModel]) -> Schema:
    """A text in which each line is a JSON object of that model."""
    return {**TEXT, "description": description, "x-line": reference(model)}


def _page(model: type[BaseModel], headers: Mapping[str, str]) -> Described:
    """Messages in the format asked for."""
    content = {
        JSON: reference(model),
        NDJSON: _lines("A message a line.", messages.Message),
        ARROW: {**BINARY, "description": "An Arrow IPC stream, with a row for each message."},
    }
    return Described("Messages, in the format asked for.", content, headers, (model, messages.Message))


def _stream(model: type[BaseModel], more: Mapping[str, Schema] | None = None) -> Described:
    """Lines as they come, until either side ends it."""
    content = {**(more or {}), NDJSON: _lines("A line as soon as there is one.", model)}
    return Described("A stream.", content, models=(model,))


_EMPTY = Described("Done.")
_CLAIMS = Described(
    "Claimed messages, in the format asked for.",
    {
        JSON: reference(groups.Claims),
        ARROW: {**BINARY, "description": "An Arrow IPC stream; its metadata has the claims as `braid-claims`."},
    },
    models=(groups.Claims,),
)
_SUBSCRIPTION = _stream(
    files.StreamLine,
    {SSE: {**TEXT, "description": "Events `message` and `end`. The id of each is the marker to go on at."}},
)
_METRICS = Described("Metrics.", {"text/plain": {**TEXT, "description": "Prometheus' text format."}})
_PAYLOAD = Described("The bytes.", {"application/octet-stream": BINARY})
_ELSEWHERE = Described("They are at another address, on the object store itself.", headers=_LOCATION)
_SOCKET = Described("The connection is a WebSocket from here on, of the subprotocol `braidmq.v1`.")
_GROUP = _json(groups.QueueGroup, groups.StreamGroup)
_PUT_GROUP = _json(groups.PutQueueGroup, groups.PutStreamGroup)
_TICKET = _json(messages.Ticket)
_ALIVE = _json(cluster.Alive)
_DECIDED = _json(groups.Decisions)

BODIES: Mapping[Route, Body] = {
    routes.PUT_TOPIC: Body(topics.TopicBody, is_required=False),
    routes.PUT_TOPIC_GROUP: Body(topics.TopicGroupBody, is_required=False),
    routes.PUT_GROUP: Body(groups.GroupBody, is_required=False),
    routes.PUT_POLICY: Body(cluster.PolicyBody),
}
"""What these endpoints check in several parts."""

ANSWERS: Mapping[Route, Mapping[int, Described]] = {
    routes.LIVEZ: {200: _ALIVE},
    routes.HEALTHZ: {200: _ALIVE},
    routes.READYZ: {200: _json(cluster.Readiness), 503: _json(cluster.Readiness)},
    routes.METRICS: {200: _METRICS},
    routes.CLUSTER: {200: _json(cluster.Cluster)},
    routes.VERIFY_CLUSTER: {200: _stream(cluster.VerificationLine)},
    routes.GET_POLICY: {200: _json(cluster.Policy, headers=_ETAG)},
    routes.PUT_POLICY: {200: _json(cluster.Policy, headers=_ETAG)},
    routes.DRAIN: {202: _json(cluster.Drain)},
    routes.END_DRAIN: {200: _json(cluster.Drain)},
    routes.LIST_TOPICS: {200: _json(topics.TopicList)},
    routes.GET_TOPIC: {200: _json(topics.Topic)},
    routes.PUT_TOPIC: {200: _json(topics.PutTopic), 201: _json(topics.PutTopic)},
    routes.DELETE_TOPIC: {204: _EMPTY},
    routes.GET_ROUTE: {200: _json(topics.TopicRoute)},
    routes.HISTORY: {200: _json(topics.TopicHistory)},
    routes.VERIFY_TOPIC: {200: _stream(cluster.VerificationLine)},
    routes.UPKEEP: {202: _json(topics.Upkeep)},
    routes.SPLIT: {200: _json(topics.Successors)},
    routes.MERGE: {200: _json(topics.Successors)},
    routes.LIST_TOPIC_GROUPS: {200: _json(topics.TopicGroupList)},
    routes.GET_TOPIC_GROUP: {200: _json(topics.TopicGroup)},
    routes.PUT_TOPIC_GROUP: {200: _json(topics.PutTopicGroup), 201: _json(topics.PutTopicGroup)},
    routes.DELETE_TOPIC_GROUP: {204: _EMPTY},
    routes.PUBLISH: {200: _json(messages.Published)},
    routes.BROWSE: {200: _page(messages.MessagePage, _MARKER)},
    routes.GET_MESSAGE: {200: _json(messages.Message)},
    routes.GET_PAYLOAD: {200: _PAYLOAD, 307: _ELSEWHERE},
    routes.READ_SEGMENT: {200: _page(messages.SegmentPage, _OFFSETS)},
    routes.SEGMENT_FILES: {200: _json(files.SegmentFileList)},
    routes.FILES: {200: _json(files.FileList)},
    routes.POSITIONS: {200: _json(messages.Positions)},
    routes.SUBSCRIBE: {200: _SUBSCRIPTION},
    routes.SOCKET: {101: _SOCKET},
    routes.SUBSCRIBE_TICKET: {201: _TICKET},
    routes.SOCKET_TICKET: {201: _TICKET},
    routes.BEGIN_UPLOAD: {201: _json(messages.Upload)},
    routes.UPLOAD: {201: _json(messages.StoredPayload)},
    routes.BEGIN_LOAD: {200: _json(files.Reservation), 201: _json(files.Reservation)},
    routes.LOAD_URLS: {200: _json(files.FileTargets)},
    routes.GET_LOAD: {200: _json(files.ReservedLoad, files.CommittedLoad)},
    routes.COMMIT_LOAD: {200: _json(files.LoadCommit)},
    routes.ABORT_LOAD: {204: _EMPTY},
    routes.LOAD_FILE: {201: _json(files.LoadFile)},
    routes.LIST_GROUPS: {200: _json(groups.GroupList)},
    routes.GET_GROUP: {200: _GROUP},
    routes.PUT_GROUP: {200: _PUT_GROUP, 201: _PUT_GROUP},
    routes.DELETE_GROUP: {204: _EMPTY},
    routes.RESET: {200: _GROUP},
    routes.REDRIVE: {200: _json(groups.Redriven)},
    routes.GROUP_MESSAGES: {200: _json(groups.GroupMessagePage)},
    routes.CLAIM: {200: _CLAIMS},
    routes.ACK: {200: _DECIDED},
    routes.RELEASE: {200: _DECIDED},
    routes.EXTEND: {200: _DECIDED},
    routes.COMMIT: {200: _json(groups.Commits)},
    routes.JOIN: {201: _json(groups.Membership)},
    routes.HEARTBEAT: {200: _json(groups.Membership)},
    routes.LEAVE: {204: _EMPTY},
}
