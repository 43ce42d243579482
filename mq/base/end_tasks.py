"""Ends the tasks of a request and leaves nothing of them behind."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any


async def end_tasks(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel tasks and return when all have ended, whatever they raise.

    A caller that fails with what one of them has raised has to drop its names for them besides: the task has the error,
    the error by its traceback the caller's frame, and the frame the task. Only a collection of garbage would free them,
    which is rare, and with them whatever the request holds. `asyncio.gather` keeps the errors in the same way.
    """
    for each in tasks:
        each.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for each in tasks:
        if not each.cancelled():
            each.exception()  # it is retrieved now


def raise_first(outcomes: Iterable[object], *, but: type[Exception] | tuple[type[Exception], ...] = ()) -> None:
    """Raise the first error among what `asyncio.gather` returned, but for those. Give it the list unnamed.

    A name for the error, or for a list with it, would hold the frames through which it goes, as in `end_tasks`.
    """
    errors = (each for each in outcomes if isinstance(each, BaseException) and not isinstance(each, but))
    error = next(errors, None)
    del outcomes, errors
    try:
        if error is not None:
            raise error
    finally:
        del error
