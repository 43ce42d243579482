"""Why a stream ends, and where its reader goes on."""

from typing import Any, NamedTuple

import orjson
from starlette.types import Scope

from filer.errors import BraidError, UnreadableObject
from filer.topic.positions import Positions, to_marker
from mq.base.errors import PositionTooOld, repeatable
from mq.http.hidden_names import hidden_names
from mq.http.problems import problem_of
from mq.topic.topic_view import TopicView


class StreamEnd(NamedTuple):
    """The last part of a stream."""

    reason: dict[str, Any]
    marker: str


def end_of(
    view: TopicView,
    positions: Positions,
    error: PositionTooOld | UnreadableObject | None,
    refusal: BraidError | None = None,
    scope: Scope | None = None,
) -> StreamEnd:
    """The end of a stream that has sent all before `positions`; without an error the broker drains.

    With a `refusal` its reader may not read on: the credential has ended, or does not allow it any more.

    The marker is that of the next messages, even if they cannot be read. If they have expired, it is that of the oldest
    messages.
    """
    marker = to_marker(view.topic, positions)
    if refusal is not None:
        return StreamEnd({"end": "refused", "problem": _document(refusal, scope)}, marker)
    if view.state.deleted and not isinstance(error, UnreadableObject):
        return StreamEnd({"end": "deleted"}, marker)
    if error is None:
        return StreamEnd({"end": "draining"}, marker)
    problem = _document(error, scope)
    if isinstance(error, PositionTooOld):
        return StreamEnd({"end": "expired", "problem": problem}, error.earliest)
    return StreamEnd({"end": "unreadable", "problem": problem}, marker)


def _document(error: BraidError, scope: Scope | None) -> dict[str, Any]:
    """The error's problem, with only the names that the client of that request may see."""
    document: dict[str, Any] = orjson.loads(problem_of(repeatable(error)).body())
    hidden = None if scope is None else hidden_names(scope)
    return document if hidden is None else hidden.problem(document)
