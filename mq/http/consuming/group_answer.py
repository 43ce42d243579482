"""The answers to requests about groups, wherever the group is coordinated."""

import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi.responses import Response

from mq.forms.formats import JSON
from mq.forms.render import Part
from mq.groups.segment_groups import SegmentGroups
from mq.http.reply import PageResponse
from mq.limits.read_budget import ReadLease
from mq.peers.group_call import GroupRequest


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """An answer: a document, or claimed messages as `parts`."""

    status: int
    media_type: str
    parts: Sequence[Part]

    @classmethod
    def of(cls, document: Mapping[str, Any], status: int = 200) -> "GroupAnswer":
        """A JSON document."""
        return cls(status, JSON, [orjson.dumps(document)])


Operation = Callable[[SegmentGroups, GroupRequest, ReadLease], Coroutine[Any, Any, GroupAnswer]]
"""Does the requested work on one of those groups. The lease holds the memory of the answer."""


def response_of(answer: GroupAnswer, lease: ReadLease) -> Response:
    """The answer to a client. It holds the lease until it is sent."""
    if not answer.parts:
        with contextlib.closing(lease):
            return Response(status_code=answer.status)
    return PageResponse(answer.parts, {}, answer.media_type, lease, answer.status)
