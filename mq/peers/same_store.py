"""Proves, before a broker joins, that its store is that of the brokers that run, and no copy of it.

A copy of a store has everything that the store had: the cluster's name, its id, its secret. It cannot have objects that
are written after it was made. So a broker that starts writes an object under a fresh name, and a broker that runs has
to find it on its own store (docs/design.md §8). `model/same_store.py` has these rules.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from filer import keys
from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import BraidError, InvalidConfig, ObjectExists, OutcomeUnknown, StoreError
from filer.event_log import EventLog
from filer.stores.store import Store
from leader.membership.coordinator import BrokerInfo
from mq.base.errors import PeerFailed, PeerTooOld
from mq.peers.peers import Peers

MOST_ASKED = 16
PUT_TRIES = 5
PAUSE_SECONDS = 0.5
SHORTEST_PATIENCE_SECONDS = 30.0
SESSIONS_OF_PATIENCE = 2
"""A dead broker stays announced for a session of its own: a broker announced for longer lives."""

Verdict = Literal["same", "another", "unknown"]
_log = EventLog(__name__)


class SameStore:
    """The proof of one broker that starts. Call `prove` before it joins, and again once it has.

    The running broker reads, and the starting one writes, so a copy that is kept up to date from the store is found out
    as well. All brokers that have started have one store. So one answer will do, and the eldest that gives one decides:
    a broker that has a copy keeps only itself out.
    """

    def __init__(self, store: Store, clock: Clock, peers: Peers, *, session_timeout_seconds: float) -> None:
        self._store, self._clock, self._peers = store, clock, peers
        self._patience_seconds = max(SHORTEST_PATIENCE_SECONDS, SESSIONS_OF_PATIENCE * session_timeout_seconds)
        self._where = store.uri(keys.CLUSTER).removesuffix(f"/{keys.CLUSTER}")

    async def prove(self, elders: Callable[[], Awaitable[Sequence[BrokerInfo]]]) -> None:
        """Return once an elder has found what was written here, or there are no elders. The eldest comes first.

        If no elder answers, they may have died, with sessions that have not ended, or be starting too: this waits for
        them. It waits for those that are announced as starting in any case: with the others gone, one of them would be
        the first. Elders of a version before do not know the call; they are believed if no other answers.

        Raises `InvalidConfig` if an elder has another store, and if elders stay silent for longer than a dead broker is
        announced: this broker could not work with them, and could not distinguish their store from a copy. Raises
        `OutcomeUnknown` and `StoreRefused` if nothing can be written.
        """
        if not (announced := await elders()):
            return
        ulid, content = self._clock.ulid(), self._clock.entropy(16).hex()
        try:
            await self._write(keys.store_proof(ulid), content.encode())
            patience_ends = self._clock.monotonic_seconds() + self._patience_seconds
            backoff, is_told = Backoff(self._clock, longest_seconds=PAUSE_SECONDS), False
            while announced:
                asked = announced[:MOST_ASKED]
                answers = await asyncio.gather(*(self._ask(each, ulid, content) for each in asked))
                starting = [each for each in announced if each.starting]
                if self._is_proven(asked, answers) and not starting:
                    return
                if starting:
                    awaited, why = starting[0], "it has not started yet"
                else:
                    awaited, why = asked[0], str(answers[0])
                if self._clock.monotonic_seconds() > patience_ends:
                    raise self._silent(awaited, why)
                if not is_told:
                    is_told = True
                    _log.info("waits_for_broker", broker=awaited.id, url=awaited.url, why=why)
                await backoff.pause()
                announced = await elders()
        finally:
            # If this process stops before, the object that stays is harmless: its name never comes back.
            with contextlib.suppress(StoreError):
                await self._store.delete([keys.store_proof(ulid)])

    def _is_proven(self, asked: Sequence[BrokerInfo], answers: Sequence[Verdict | BraidError]) -> bool:
        """Whether an elder's answer shows that all is well. Raises `InvalidConfig`."""
        for each, answer in zip(asked, answers, strict=True):
            if answer == "another":
                raise InvalidConfig(
                    f"{each.id} at {self._peers.url_of(each)} does not find on its store what this broker has just "
                    f"written to {self._where}: that is a copy of the cluster's store. Give all brokers of a "
                    "cluster the same --store, and start a broker on a copy without --zookeeper, or with another one"
                )
            if answer == "same":
                return True
        return "unknown" in answers

    def _silent(self, elder: BrokerInfo, why: str) -> InvalidConfig:
        return InvalidConfig(
            f"{elder.id}, which is announced at {self._peers.url_of(elder)}, does not answer, so nothing shows that "
            f"{self._where} is its store and no copy of that; this broker does not join. Make it reachable from here, "
            f"or end it: {why}"
        )

    async def _ask(self, other: BrokerInfo, ulid: str, content: str) -> Verdict | BraidError:
        """Return what a broker says of the store; the error, if it gives no answer to that."""
        try:
            found = await self._peers.prove_store(self._peers.url_of(other), ulid)
        except PeerTooOld:
            return "unknown"
        except BraidError as error:
            return error
        if found.broker != other.id:
            return PeerFailed(f"{found.broker} answers there")
        return "same" if found.content == content else "another"

    async def _write(self, key: str, content: bytes) -> None:
        for _ in range(PUT_TRIES - 1):
            # No other broker uses the name: if the object exists, an earlier try took effect.
            with contextlib.suppress(OutcomeUnknown):
                return await self._create(key, content)
            await self._clock.sleep(PAUSE_SECONDS)
        await self._create(key, content)

    async def _create(self, key: str, content: bytes) -> None:
        with contextlib.suppress(ObjectExists):
            await self._store.create(key, content)
