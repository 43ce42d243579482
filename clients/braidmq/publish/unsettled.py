"""Reports at the end of a program how many messages of its producers have no acknowledgement, and no error either.

A program that ends without closing a producer would lose them in silence.
"""

import atexit
import os
import sys
from contextlib import suppress
from typing import Protocol


class HasUnsettled(Protocol):
    """A producer."""

    topic: str

    def unsettled(self) -> int:
        """How many messages it has taken whose outcome was not reported."""
        ...


_producers: set[HasUnsettled] = set()


def note(producer: HasUnsettled) -> None:
    """Note that it has messages, or none any more. While it has some, it is kept: else it may be collected too soon."""
    if producer.unsettled():
        _producers.add(producer)
    else:
        _producers.discard(producer)


def forget(producer: HasUnsettled) -> None:
    """Forget a producer whose end was reported, by an exception or by its receipts."""
    _producers.discard(producer)


@atexit.register
def _tell() -> None:
    for producer in list(_producers):
        if (count := producer.unsettled()) and sys.stderr is not None:
            what = "1 message" if count == 1 else f"{count:,} messages"
            # If standard error is closed, there is no other place to report to.
            with suppress(OSError, ValueError):
                sys.stderr.write(
                    f"braidmq: the program ends, and a producer of topic {producer.topic!r} has no acknowledgement of "
                    f"{what}: close it, or use it in a with block\n"
                )


if hasattr(os, "register_at_fork"):
    # A forked process has none of them: their messages belong to its parent.
    os.register_at_fork(after_in_child=_producers.clear)
