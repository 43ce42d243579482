"""The cluster, probes, the policy, and checks of what is stored."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from filer.topic.topic_state import Reason
from mq.http.openapi.answer import ABSENT, Answer
from mq.http.openapi.problems import Problem, ReadinessProblem
from mq.security.policy.limits import MOST


class Alive(Answer):
    """The process is alive."""

    status: Literal["ok"]


class Readiness(Answer):
    """Whether a broker takes requests. A client that may not observe the cluster gets `ready` alone."""

    ready: bool
    status: Literal["ok", "degraded", "starting", "draining"] = ABSENT
    problems: list[ReadinessProblem] = ABSENT


class Broker(Answer):
    """A broker of a cluster."""

    broker: str
    url: str
    peer_url: str | None
    """Where other brokers call it, if they have a port of their own."""
    zone: str
    version: str
    state: Literal["running", "draining"]
    segments: int | None
    """How many open segments it owns. Null for clients that may not observe the cluster."""
    pending_bytes: int | None
    """What it has not stored yet; null if that is not known."""


class Transition(Answer):
    """A change of a topic's segments that is under way."""

    topic: str
    reason: Reason
    seal: list[int]
    open: list[int]


class DamagedTopic(Answer):
    """A topic of which objects are known to be damaged or missing."""

    topic: str
    objects: int


class Cluster(Answer):
    """A cluster."""

    cluster: str
    version: str
    leader: str | None
    brokers: list[Broker]
    peer_keys: Literal["required", "optional", "none"] | None
    transitions: list[Transition]
    topics_loading: int | None
    """How many topics a broker without a cluster has still to read after its start."""
    problems: list[ReadinessProblem]
    damaged: list[DamagedTopic]


class Drain(Answer):
    """A drain, or its end."""

    broker: str
    segments: int
    """How many segments the broker has."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class PolicyGrants(_Entry):
    """Additional grants of principals."""

    principal: str
    """A name, or a prefix with `*` behind it."""
    grants: Annotated[list[str], Field(min_length=1)]


class RevokedToken(_Entry):
    """A token that is revoked."""

    id: str
    """Its `jti`."""
    until: AwareDatetime
    """When it ends by itself."""


class RevokedPrincipal(_Entry):
    """A principal whose older credentials are revoked."""

    principal: str
    before: AwareDatetime


_Limit = Annotated[int, Field(ge=1, le=MOST)]


class PolicyQuota(_Entry):
    """Limits of principals: at least one."""

    principal: str
    """A name, or a prefix with `*` behind it."""
    requests_per_second: _Limit = ABSENT
    publish_bytes_per_second: _Limit = ABSENT
    read_bytes_per_second: _Limit = ABSENT
    streams: _Limit = ABSENT
    connections: _Limit = ABSENT
    topics_per_hour: _Limit = ABSENT
    groups: _Limit = ABSENT
    storage_bytes: _Limit = ABSENT
    storage_topics: str = ABSENT
    """The topics that `storage_bytes` is about: a name, or a prefix with `*` behind it."""


class PolicyBody(_Entry):
    """A policy. A section that is not there is empty."""

    version: int = ABSENT
    """That of `If-Match`."""
    grants: list[PolicyGrants] = ABSENT
    revoked_tokens: list[RevokedToken] = ABSENT
    revoked_principals: list[RevokedPrincipal] = ABSENT
    quotas: list[PolicyQuota] = ABSENT


class Policy(Answer):
    """The policy in force."""

    version: int
    grants: list[PolicyGrants]
    revoked_tokens: list[RevokedToken]
    revoked_principals: list[RevokedPrincipal]
    quotas: list[PolicyQuota]


class FoundObject(Answer):
    """An object that is not sound."""

    key: str
    condition: str
    why: str


class VerificationLine(Answer):
    """How far a check has come. All numbers but `bytes` count objects. The last line has `is_complete` or `problem`."""

    ok: int
    unchecked: int
    given_up: int
    damaged: int
    missing: int
    bytes: int
    at: str
    """The last object."""
    found: FoundObject = ABSENT
    is_complete: Literal[True] = ABSENT
    problem: Problem = ABSENT
