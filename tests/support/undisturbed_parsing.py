"""Prevent CPython before 3.11.8 from failing in `ast.parse` with a SystemError (python/cpython#106905).

It counts its depth in one variable for all threads. Collecting garbage in the middle of a parse may run a finalizer,
or let another thread run, that parses as well (what formats a traceback does): "AST constructor recursion depth
mismatch". pytest parses test modules, and the modules of its plugins: schemathesis imports some of its own when used.
"""

import ast
import contextlib
import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


def parse_undisturbed() -> None:
    """Collect no garbage while `ast.parse` runs, from now on. Does nothing if Python has the fix."""
    if sys.version_info < (3, 11, 8):
        ast.parse = _without_collecting(ast.parse)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect no garbage while the block runs."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _without_collecting(parse: Callable[..., Any]) -> Callable[..., Any]:
    parsing = threading.RLock()

    @functools.wraps(parse)
    def undisturbed(*arguments: Any, **settings: Any) -> Any:
        with parsing, no_garbage_collection():
            return parse(*arguments, **settings)

    return undisturbed
