"""Requests of a socket about groups. The group's coordinator answers them, as over HTTP."""

from typing import Any

import orjson

from filer.backoff import backoff_seconds
from filer.clock import Clock
from filer.errors import BraidError
from mq.http.consuming.group_answer import GroupAnswer
from mq.http.consuming.group_router import GroupRouter
from mq.http.reply import logged_problem
from mq.limits.read_budget import ReadLease
from mq.peers.group_call import GroupRequest

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0


class GroupRefused(BraidError):
    """A problem that the coordinator of a group has answered, if that is another broker."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(str(problem.get("detail")))
        self.problem = problem


async def asked_of_group(
    router: GroupRouter, request: GroupRequest, lease: ReadLease, wait_seconds: float = 0.0
) -> GroupAnswer:
    """The answer of the group's coordinator. Raises `GroupRefused` for its problem, and what `problem_of` knows."""
    answer = await router.serve(request, lease, wait_seconds=wait_seconds)
    if answer.status >= 400:
        raise GroupRefused(orjson.loads(b"".join(answer.parts)))
    return answer


def problem_document(error: Exception, path: str) -> dict[str, Any]:
    """The problem of a request about a group, whichever broker found it."""
    if isinstance(error, GroupRefused):
        return error.problem
    found: dict[str, Any] = orjson.loads(logged_problem(error, "SOCKET", path).body())
    return found


async def pause_after(clock: Clock, failed: int) -> None:
    """Wait before a retry that needs work of others first, such as a new coordinator."""
    await clock.sleep(backoff_seconds(failed, first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS))
