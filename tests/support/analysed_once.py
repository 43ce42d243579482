"""FastAPI looks at the parameters of each endpoint anew for every app that is made. Tests make thousands of brokers.

What it finds follows from the endpoint's code alone, which is the same for all brokers of a process; each has functions
of its own. So it is found once for each function's code, and each function gets a copy with itself in it.
"""

import functools
from collections.abc import Callable
from dataclasses import fields, replace
from types import CodeType
from typing import Any

from fastapi import routing
from fastapi.dependencies.models import Dependant


def analyse_endpoints_once() -> None:
    """From now on, in this process and in those that are forked from it."""
    if not hasattr(routing.get_dependant, "__wrapped__"):
        routing.get_dependant = _once(routing.get_dependant)


def _once(analyse: Callable[..., Dependant]) -> Callable[..., Dependant]:
    known: dict[tuple[CodeType, tuple[tuple[str, Any], ...]], Dependant] = {}

    @functools.wraps(analyse)
    def analysed(*, call: Callable[..., Any], **how: Any) -> Dependant:
        if not hasattr(call, "__code__"):
            return analyse(call=call, **how)
        key = (call.__code__, tuple(sorted(how.items())))
        if key not in known:
            # Without the function, which holds its broker.
            known[key] = replace(_copied(analyse(call=call, **how)), call=None)
        return replace(_copied(known[key]), call=call)

    return analysed


def _copied(dependant: Dependant) -> Dependant:
    """A copy whose lists are its own: FastAPI adds to them."""
    lists = {
        each.name: list(value) for each in fields(dependant) if isinstance(value := getattr(dependant, each.name), list)
    }
    return replace(dependant, **lists)
