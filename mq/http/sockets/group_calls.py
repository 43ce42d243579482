"""What the parts of a socket that ask groups have in common: problems as documents, and pauses before a retry."""

from typing import Any

from filer.backoff import backoff_seconds
from filer.clock import Clock
from mq.http.reply import logged_problem

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0


def problem_document(error: Exception, path: str) -> dict[str, Any]:
    """The problem of a request about a group, whichever broker found it."""
    return logged_problem(error, "SOCKET", path).document()


async def pause_after(clock: Clock, failed: int) -> None:
    """Wait before a retry that needs work of others first, such as a new coordinator."""
    await clock.sleep(backoff_seconds(failed, first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS))
