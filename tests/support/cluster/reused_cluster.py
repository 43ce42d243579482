"""One cluster for several tests, because starting processes takes longer than many tests."""

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from tests.support.cluster.cluster import Cluster


class ReusedCluster:
    """Creates a cluster at its first use and reuses it, unless a test has failed on it."""

    def __init__(self, make: Callable[[], Cluster]) -> None:
        self._make = make
        self._cluster: Cluster | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    @contextlib.contextmanager
    def use(self) -> Iterator[Cluster]:
        """The cluster, in the state in which the last test left it."""
        if self._cluster is None:
            self._cluster = self._make().__enter__()
        try:
            yield self._cluster
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            cluster.__exit__(None, None, None)
