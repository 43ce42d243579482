"""The leader looks at brokers that refuse connections, and has others look at them as well (docs/design.md §8)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from filer.clock import Clock
from filer.event_log import EventLog
from leader.membership.coordinator import BrokerInfo, Coordinator
from leader.membership.refusing_brokers import RefusingBrokers, Sight, agreed

LOOKS_PER_PATIENCE = 5
SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
MOST_WITNESSES = 3
LOOKS_AT_ONCE = 16
_TWO_BROKERS = 2

_log = EventLog(__name__)


class Eyes(Protocol):
    """How brokers look at each other. Neither method raises; both return soon."""

    async def look(self, broker: BrokerInfo, *, heard_within_seconds: float) -> Sight:
        """What this broker sees of another. A broker that called within that time has answered."""
        ...

    async def ask(self, witness: BrokerInfo, broker: BrokerInfo, *, heard_within_seconds: float) -> Sight:
        """What `witness` sees of `broker`; `unclear` if the witness does not report it."""
        ...


class RefusalWatch:
    """Keeps `refusing` up to date. `broker` is the id of this one. All methods belong to the event loop's thread.

    It looks at no broker before `told` reports a refusal, and calls `on_change` whenever other brokers are gone, unfit
    or doubtful than before. With a patience of 0 in `refusing` it does nothing: every failover waits for a session to
    end.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        eyes: Eyes,
        refusing: RefusingBrokers,
        *,
        broker: str,
        on_change: Callable[[], None],
    ) -> None:
        self._coordinator, self._clock, self._eyes, self._refusing = coordinator, clock, eyes, refusing
        self._broker, self._on_change = broker, on_change
        self._wake = asyncio.Event()
        self._gate = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._looks = 0

    def told(self, broker: str) -> bool:
        """Note a refused connection at a broker's address; False if this broker does not look at refusals.

        A broker that is not announced is failed over as ever.
        """
        if self._refusing.patience_seconds <= 0 or not self._coordinator.leads():
            return False
        info = next((each for each in self._coordinator.brokers() if each.id == broker), None)
        if info is not None and broker != self._broker:
            self._refusing.suspect(info, now_seconds=self._clock.monotonic_seconds())
            self._wake.set()
        return True

    async def run(self) -> None:
        """Look until cancelled."""
        pause_seconds = self._refusing.patience_seconds / LOOKS_PER_PATIENCE
        pause_seconds = min(max(pause_seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        while True:
            if not self._refusing.watched:
                await self._wake.wait()
            self._wake.clear()
            await self._round()
            if self._refusing.watched:
                await self._clock.sleep(pause_seconds)

    async def _round(self) -> None:
        before = self._seen()
        if self._coordinator.leads():
            self._refusing.keep_only(self._coordinator.brokers())
            await asyncio.gather(*(self._look(each) for each in self._refusing.watched))
        else:
            self._refusing.clear()
        if before != self._seen():
            self._on_change()

    def _seen(self) -> object:
        return self._refusing.gone, self._refusing.unfit, self._refusing.doubtful

    async def _look(self, broker: BrokerInfo) -> None:
        """Look at one broker, and have others look at it at the same time."""
        refusing = self._refusing
        within_seconds = refusing.refused_seconds(broker.id, now_seconds=self._clock.monotonic_seconds())
        witnesses, alone = self._witnesses(broker)
        async with self._gate:
            own, *others = await asyncio.gather(
                self._eyes.look(broker, heard_within_seconds=within_seconds),
                *(self._eyes.ask(each, broker, heard_within_seconds=within_seconds) for each in witnesses),
            )
        was_gone = broker.id in refusing.gone
        refusing.looked(
            broker.id,
            agreed(own, others, alone=alone),
            alone=alone,
            now_seconds=self._clock.monotonic_seconds(),
            session_seconds=self._coordinator.session_timeout_seconds,
        )
        self._tell(broker, was_gone, [each.id for each, saw in zip(witnesses, others, strict=True) if saw == "refused"])

    def _witnesses(self, broker: BrokerInfo) -> tuple[Sequence[BrokerInfo], bool]:
        """Some brokers that may see it, others each time; and whether this broker and that one are the only two.

        Brokers that are looked at themselves are no witnesses. If all others are looked at, the leader may be cut off
        itself.
        """
        members = self._coordinator.brokers()
        looked_at = {each.id for each in self._refusing.watched}
        able = [each for each in members if each.id != self._broker and each.id not in looked_at]
        self._looks += 1
        first = self._looks % max(len(able), 1)
        return (able[first:] + able[:first])[:MOST_WITNESSES], len(members) == _TWO_BROKERS

    def _tell(self, broker: BrokerInfo, was_gone: bool, witnesses: Sequence[str]) -> None:
        is_gone = broker.id in self._refusing.gone
        if is_gone and not was_gone:
            _log.warning("broker_refuses", broker=broker.id, url=broker.url, seen_by=[self._broker, *witnesses])
        elif was_gone and not is_gone:
            _log.warning("broker_answers_again", broker=broker.id, url=broker.url)
