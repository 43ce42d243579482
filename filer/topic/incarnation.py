"""cluster/incarnation.json: the last broker without a cluster, and whether it has stopped (docs/design.md §8).

Such a broker is alone on its store. If the record says that the one before has stopped, with nothing of it under way,
the next one goes on as the same incarnation: the segments are its own, and need no seal. After any other end it takes a
new incarnation, and segments of the old one are sealed when they are used.

A wrong record loses and doubles nothing: the names of segment files fence, as between any two brokers
(`model/restarts.py`). So a damaged record counts as none.
"""

import contextlib
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from filer import keys
from filer.clock import Clock
from filer.errors import BraidError, CorruptFile, EtagMismatch, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.stores.store import Store
from filer.topic.record_check import checked, with_check

TRIES = 10
PAUSE_SECONDS = 0.2

Ends = dict[str, dict[int, int]]
"""Offsets that the logs of segments reached, by topic and segment id."""


class StoreTaken(BraidError):
    """Another broker without a cluster has started on the same store."""


class IncarnationRecord(BaseModel):
    """The record. `broker` is the id that was taken last, `process` names the process that took it.

    `ends` are offsets that segments are known to have reached. They outlive a kill: a log never becomes shorter.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    broker: str
    process: str
    stopped: bool
    ends: Ends = {}


class Incarnation:
    """The id of one process's broker, and its record on the store.

    `broker` is the id. `resumed`: the store may have segments of that id, which an earlier process has written.
    """

    def __init__(self, store: Store | None, clock: Clock, name: str) -> None:
        self.broker, self.resumed = f"{name}.{clock.ulid()}", False
        self._store, self._clock, self._name = store, clock, name
        self._process = clock.ulid()
        self._found: IncarnationRecord | None = None
        # The ETag of the record as it was found, then as this process wrote it; None while there is none.
        self._etag: str | None = None
        self._taken = False

    @classmethod
    async def find(cls, store: Store, clock: Clock, name: str) -> "Incarnation":
        """The incarnation that a broker of that name is to take; writes nothing yet. Raises `StoreError`."""
        found = cls(store, clock, name)
        with contextlib.suppress(ObjectNotFound):
            fetched = await store.get(keys.INCARNATION)
            found._etag = fetched.info.etag
            with contextlib.suppress(CorruptFile):
                found._found = _parse(fetched.data)
        if found._found is not None and found._found.stopped and found._found.broker.rpartition(".")[0] == name:
            found.broker, found.resumed = found._found.broker, True
        return found

    def end_of(self, topic: str, segment: int) -> int:
        """The offset that a segment is known to have reached before this process; 0 if nothing is known."""
        return 0 if self._found is None else self._found.ends.get(topic, {}).get(segment, 0)

    def ends_of(self, topic: str) -> Mapping[int, int]:
        """As `end_of`, of all segments of a topic."""
        return {} if self._found is None else self._found.ends.get(topic, {})

    @property
    def left_running(self) -> str | None:
        """The id of the broker before this one if it has not noted a stop: it was killed, or it still runs."""
        return None if self._found is None or self._found.stopped else self._found.broker

    @property
    def topics(self) -> set[str]:
        """The topics with known ends."""
        return set() if self._found is None else set(self._found.ends)

    async def take(self) -> None:
        """Take it. Stopped before the record is written, nothing has happened; stopped after it, as after a kill.

        Does nothing for a broker of a cluster. Raises `StoreTaken` if another broker has just changed the record, and
        `OutcomeUnknown`.
        """
        if self._store is None:
            return
        ends = {} if self._found is None else self._found.ends
        await self._write(IncarnationRecord(broker=self.broker, process=self._process, stopped=False, ends=ends))
        self._taken = True

    async def check_newest(self) -> None:
        """Raise `StoreTaken` if another broker has started on the store since this one. Raises `StoreError`.

        That broker then takes over the segments without an owner. This is a courtesy, so that two brokers do not take
        topics from each other in turns; the names of files fence a broker that takes one over, as ever.
        """
        if self._store is None or not self._taken:
            return
        with contextlib.suppress(ObjectNotFound, CorruptFile):
            process = _parse((await self._store.get(keys.INCARNATION)).data).process
            if process != self._process:
                raise StoreTaken(
                    f"another broker has started on this store since this one ({self._store.uri(keys.INCARNATION)}): "
                    "stop one of the two, or give them a --zookeeper"
                )

    async def stopped(self, ends: Ends) -> None:
        """Note that this process has stopped. Call it when nothing of it is under way, and nothing follows.

        Stopped before this is written, or if another broker has taken the record, the next one takes a new incarnation.
        """
        if self._store is None or not self._taken:
            return
        record = IncarnationRecord(broker=self.broker, process=self._process, stopped=True, ends=ends)
        with contextlib.suppress(StoreTaken):
            await self._write(record)

    async def _write(self, record: IncarnationRecord) -> None:
        """Write by compare-and-swap with the record that this process knows, until the outcome is known."""
        assert self._store is not None
        data = with_check(record.model_dump_json(indent=1).encode())
        for _ in range(TRIES):
            try:
                if self._etag is None:
                    await self._store.create(keys.INCARNATION, data)
                    # Its ETag is read with its bytes: another broker may have replaced it by now.
                    raise ObjectExists(keys.INCARNATION)
                self._etag = await self._store.replace(keys.INCARNATION, data, etag=self._etag)
                return
            except (EtagMismatch, ObjectExists):
                # Perhaps an earlier try of this very write has taken effect.
                if await self._is_written(data):
                    return
                raise StoreTaken(
                    f"another broker has just started or stopped on this store ({self._store.uri(keys.INCARNATION)}): "
                    "two need a --zookeeper; if there is no other, start this one again"
                ) from None
            except OutcomeUnknown:
                await self._clock.sleep(PAUSE_SECONDS)
        raise OutcomeUnknown(f"{keys.INCARNATION} could not be written")

    async def _is_written(self, data: bytes) -> bool:
        assert self._store is not None
        try:
            fetched = await self._store.get(keys.INCARNATION)
        except ObjectNotFound:
            return False
        if fetched.data != data:
            return False
        self._etag = fetched.info.etag
        return True


def _parse(data: bytes) -> IncarnationRecord:
    try:
        return IncarnationRecord.model_validate(checked(data, key=keys.INCARNATION, first="broker")[0])
    except ValueError as error:
        raise CorruptFile(f"{keys.INCARNATION} cannot be read: {error}", key=keys.INCARNATION) from error
