"""Errors of the client reach its caller without the traceback of the client's inside.

The message names the fault in one line. Dozens of lines of traceback through the client, its HTTP library and the event
loop would not help the caller. An error of any other library keeps its traceback.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import wraps
from typing import Any, TypeVar

from braidmq.errors import BraidMQError

C = TypeVar("C", bound=type)

_ENTRANCES = ("__init__", "__aenter__", "__aexit__", "__enter__", "__exit__")


class _Tracebacks:
    are_whole = False


def short_tracebacks(decorated: C) -> C:
    """Make each public method of a class raise errors of the client as `shortened`."""
    for name, member in vars(decorated).copy().items():
        if inspect.isfunction(member) and (name in _ENTRANCES or not name.startswith("_")):
            setattr(decorated, name, shortening(member))
    return decorated


def shortening(function: Callable[..., Any]) -> Any:
    """The same function, coroutine function or asynchronous generator; it raises errors as `shortened`."""
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def coroutine(*given: Any, **named: Any) -> Any:
            try:
                return await function(*given, **named)
            except BraidMQError as error:
                raise shortened(error) from error.__cause__

        return coroutine
    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def generator(*given: Any, **named: Any) -> AsyncIterator[Any]:
            try:
                async with aclosing(function(*given, **named)) as items:
                    async for item in items:
                        yield item
            except BraidMQError as error:
                raise shortened(error) from error.__cause__

        return generator

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except BraidMQError as error:
            raise shortened(error) from error.__cause__

    return call


@contextmanager
def whole_tracebacks() -> Iterator[None]:
    """Within the block, show where in the client errors came from: to look for a mistake in it."""
    before, _Tracebacks.are_whole = _Tracebacks.are_whole, True
    try:
        yield
    finally:
        _Tracebacks.are_whole = before


def shortened(error: BraidMQError) -> BraidMQError:
    """The error without its traceback and its cause, which its message names; as it is within `whole_tracebacks`."""
    if _Tracebacks.are_whole:
        return error
    error.__cause__, error.__suppress_context__ = None, True
    return error.with_traceback(None)
