"""Remedies of errors, in the words of HTTP. `braidmq/remedies.py` has those of the command line."""

from collections.abc import Mapping
from typing import Any

from filer.errors import Remedy, RemedyKind
from filer.format.schema import TOPIC_FIELD

WORDS: Mapping[RemedyKind, str] = {
    "claim": ". Claim messages with POST /v1/topics/{topic}/groups/{group}/claims",
    "configure-its-topic-group": ": configure the group (PUT /v1/topic-groups/{topic_group}), or use another name",
    "configure-topic": ", and the request wants a new one (If-None-Match: *)",
    "configure-topic-group": ": configure it with PUT /v1/topic-groups/{topic_group}, which takes the same settings",
    "create-group": ": create it with PUT /v1/topics/{topic}/groups/{group}, or claim from it, or join it",
    "create-topic": ": create it with PUT /v1/topics/{topic}",
    "create-topic-group": ": create it with PUT /v1/topic-groups/{topic_group}",
    "create-splittable-to-split": (
        ': only a group that is created with "splittable": true, whose order is by key, can be split'
    ),
    "create-splittable-with-segments": (
        '; with "splittable": true at its creation its order is by key, and it may have several'
    ),
    "create-with-topics": ': a topic group is created with its topics, as {{"topics": ["a", "b"]}}',
    "delete-topic-group": ": DELETE /v1/topic-groups/{topic_group} deletes the group with all its topics",
    "discard": '; discard it with {{"ids": ["{message}"], "discard": true}}',
    "force-consumers": '; or pass "force": true, and what they have is handed out again',
    "force-members": '; or pass "force": true, and they go on from there',
    "get-upload-id": ": get an id from POST /v1/topics/{topic}/uploads",
    "give-upload-id": ", the id that POST …/uploads returned",
    "join": ". Join it with POST /v1/topics/{topic}/groups/{group}/members",
    "publish-and-discard": (
        '; publish it to that topic yourself, and discard it with {{"ids": ["{message}"], "discard": true}}'
    ),
    "publish-to-member": ": publish to one of its topics, which GET /v1/topic-groups/{topic_group} names",
    "read-files-of-topic-group": (
        ": ask for /v1/topics/{topic_group}/files, and take the rows WHERE " + TOPIC_FIELD.name + " = '{topic}'"
    ),
    "send-token": ": send it in the header 'Authorization: Bearer TOKEN'",
    "upload": (
        ": publish in several requests, or upload a large value first (POST /v1/topics/{topic}/uploads) and publish a "
        "reference to it"
    ),
}
"""The text that follows that of the error."""


def detail_of(error: Exception) -> str:
    """The error's text, and its remedy, in the words of HTTP."""
    remedy = _remedy_of(error)
    return str(error) if remedy is None else str(error) + WORDS[remedy.kind].format(**remedy.names())


def extension_of(error: Exception) -> dict[str, Any]:
    """The member of a problem from which another front makes its own words; empty if there is no remedy."""
    remedy = _remedy_of(error)
    return {} if remedy is None else {"remedy": {"kind": remedy.kind, "fault": str(error), **remedy.names()}}


def _remedy_of(error: Exception) -> Remedy | None:
    found: Remedy | None = getattr(error, "remedy", None)
    return found
