"""Whether this process was forked since an object was made: it leaves alone what belongs to the parent."""

import os

from braidmq.errors import FORKED, ClientClosed


class _Forks:
    count = 0


def _forked() -> None:
    _Forks.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Birthplace:
    """The process in which an object was made."""

    __slots__ = ("_forks",)

    def __init__(self) -> None:
        self._forks = _Forks.count

    @property
    def is_elsewhere(self) -> bool:
        """Whether this is a process that was forked from it."""
        return self._forks != _Forks.count

    def check(self) -> None:
        """Raise `ClientClosed` in a forked process."""
        if self._forks != _Forks.count:
            raise ClientClosed(FORKED)
