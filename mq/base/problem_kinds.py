"""The kinds of problems that clients are answered with. They stay the same from version to version (docs/http.md)."""

from typing import Literal, get_args

MissingThing = Literal[
    "broker", "group", "load", "member", "message", "path", "segment", "subscription", "topic", "topic-group", "upload"
]
"""What a `NotFound` can be about."""
ConflictKind = Literal[
    "claim-lost",
    "dead-letters-pending",
    "group-active",
    "group-mode",
    "load-abandoned",
    "load-committed",
    "load-overtaken",
    "member-fenced",
    "member-replaced",
    "no-dead-letters",
    "no-policy",
    "not-neighbours",
    "not-splittable",
    "policy-newer",
    "segment-limit",
    "segment-sealed",
    "subscription-exists",
    "too-many-groups",
    "too-many-loads",
    "too-many-members",
    "too-many-redrives",
    "too-many-subscriptions",
    "topic-conflict",
    "topic-group",
    "topic-group-member",
    "upload-exists",
]
"""What a `Conflict` can be."""
OtherKind = Literal[
    "audit-failed",
    "body-too-large",
    "broker-refused",
    "broker-unreachable",
    "data-damaged",
    "data-missing",
    "draining",
    "forbidden",
    "front-store-full",
    "headers-too-large",
    "internal",
    "internal-topic",
    "invalid-config",
    "invalid-marker",
    "invalid-name",
    "invalid-reference",
    "invalid-request",
    "load-refused",
    "method-not-allowed",
    "name-taken",
    "no-other-broker",
    "not-found",
    "owner-silent",
    "policy-changed",
    "position-expired",
    "precondition-missing",
    "producer-taken",
    "publish-incomplete",
    "quota-exceeded",
    "reads-full",
    "request-timeout",
    "segment-moved",
    "sequence-expired",
    "store-unavailable",
    "too-many-connections",
    "too-many-streams",
    "too-many-uploads",
    "too-many-verifications",
    "topic-exists",
    "transition-under-way",
    "unauthenticated",
    "unsupported-media-type",
    "upgrade-required",
    "uri-too-long",
]
"""All others."""
PeerKind = Literal["copy-gap", "copy-refused", "out-of-touch"]
"""Those that only brokers are answered with."""
ProblemKind = ConflictKind | OtherKind | PeerKind
"""All but those of a `NotFound`."""
KINDS = tuple(
    sorted((*(f"{thing}-not-found" for thing in get_args(MissingThing)), *get_args(ConflictKind), *get_args(OtherKind)))
)
"""All kinds that clients can meet."""
