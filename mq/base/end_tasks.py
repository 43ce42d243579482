"""Ends the tasks of a request, and keeps no reference to them."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any


async def end_tasks(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel tasks and return when all have ended, whatever they raise.

    A caller that fails with the error of a task also has to drop its names for the tasks: the task has the error, the
    error has the caller's frame in its traceback, and the frame has the task. Only a garbage collection would free
    them, which is rare, and with them all that the request holds. `asyncio.gather` keeps the errors in the same way.
    """
    for each in tasks:
        each.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for each in tasks:
        if not each.cancelled():
            each.exception()  # it is retrieved now


def raise_first(outcomes: Iterable[object], *, but: type[Exception] | tuple[type[Exception], ...] = ()) -> None:
    """Raise the first error among the results of `asyncio.gather`, but for those of type `but`. Pass the list unnamed.

    A name for the error, or for a list with it, would hold the frames that it passes through, as in `end_tasks`.
    """
    errors = (each for each in outcomes if isinstance(each, BaseException) and not isinstance(each, but))
    error = next(errors, None)
    del outcomes, errors
    try:
        if error is not None:
            raise error
    finally:
        del error
