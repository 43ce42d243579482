"""Checks topics for clients that ask for it (`mq verify --url`), as few at a time and as fast as the settings say."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor

from filer.clock import Clock
from filer.errors import UnreadableObject
from filer.stores.decorators.paced_store import ByteRate, PacedStore
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.verification.stored_segment import ReadPlan
from filer.verification.stored_topic import verify_cluster, verify_topic
from filer.verification.verdict import Verdict
from mq.base.errors import Conflict, NotFound, TooManyVerifications

MOST_AT_ONCE = 2
FILES_AT_ONCE = 4


class Verification:
    """One check: its verdicts, and how much it has read."""

    def __init__(self, store: PacedStore, verdicts: AsyncGenerator[Verdict, None]) -> None:
        self._store, self.verdicts = store, verdicts

    @property
    def read_bytes(self) -> int:
        """The bytes read by now."""
        return self._store.read_bytes


class Verifications:
    """The checks under way at a broker, `count` of them. They share one rate. `pool` hashes."""

    def __init__(
        self, *, store: Store, clock: Clock, catalogue: Catalogue, pool: Executor, bytes_per_second: int
    ) -> None:
        self._store, self._catalogue = store, catalogue
        self._rate = ByteRate(clock, bytes_per_second)
        self._plan = ReadPlan(files_at_once=FILES_AT_ONCE, hashing=pool)
        self.count = 0

    async def of_topic(self, topic: str) -> Verification:
        """Return the check of a topic, also of a damaged one. Raises `NotFound` if there never was one of that name.

        Raises `Conflict` for a member of a topic group: it has no files, and to find it sound would say nothing.
        """
        with contextlib.suppress(UnreadableObject):
            if await self._catalogue.read(topic) is None:
                raise NotFound("topic", f"there is no topic {topic!r}")
            if (group := await self._catalogue.group_of(topic)) is not None:
                raise Conflict(
                    "topic-group-member",
                    f"the messages of {topic!r} lie in the files of topic group {group!r}: check that",
                )
        return self._new(lambda store: verify_topic(store, self._catalogue, topic, plan=self._plan))

    def of_cluster(self) -> Verification:
        """Return the check of the records of the cluster."""
        return self._new(verify_cluster)

    def check(self) -> None:
        """Raise `TooManyVerifications` if one more is too many."""
        if self.count >= MOST_AT_ONCE:
            raise TooManyVerifications(f"this broker checks {MOST_AT_ONCE} topics at a time: ask again later")

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """A context for one check."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1

    def _new(self, verdicts: Callable[[Store], AsyncGenerator[Verdict, None]]) -> Verification:
        store = PacedStore(self._store, self._rate)
        return Verification(store, verdicts(store))
