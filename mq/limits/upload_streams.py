"""Shares of the connections to the store that carry payloads while they arrive from clients."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from mq.base.errors import TooManyUploads

SHARES = 5
"""So many principals can have their whole share at the same time. Others get what is left, or are refused."""


class UploadStreams:
    """Counts the payloads that are sent on while they arrive. `most` is None if the store takes any number.

    No payload waits here: a body that is not read during a wait would count neither as slow nor as stalled.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self.share = None if most is None else max(1, most // SHARES)
        self._by_principal: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many are under way now."""
        return self._by_principal.total()

    @contextlib.contextmanager
    def counted(self, principal: str) -> Iterator[None]:
        """A context for one payload. Raises `TooManyUploads` if that is one too many."""
        self._check(principal)
        self._by_principal[principal] += 1
        try:
            yield
        finally:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]

    def _check(self, principal: str) -> None:
        if self._most is None or self.share is None:
            return
        if self._by_principal[principal] >= self.share:
            raise TooManyUploads(
                f"{self.share} payloads of this principal are under way through this broker, and more are not taken at "
                "a time: nothing of this one was stored, send it again when one of them is done"
            )
        if self.count >= self._most:
            raise TooManyUploads(
                f"{self._most} payloads are under way through this broker, and more are not taken at a time: nothing "
                "of this one was stored, send it again soon"
            )
