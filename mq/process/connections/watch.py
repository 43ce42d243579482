"""Carries out the decisions of `connections`: ends connections, counts, and logs."""

from collections.abc import Callable, Iterable
from typing import Protocol

from filer.clock import Clock
from filer.event_log import EventLog
from mq.bodies.arriving_body import PIECE_BYTES
from mq.machine_users.kernel_users import KernelUsers
from mq.metrics.metrics import Metrics
from mq.process.connections.connections import Connection, Connections, Decision
from mq.process.connections.half_heads import HalfHeads
from mq.process.connections.limits import ConnectionLimits
from mq.process.connections.refusals import COUNTED, IDLE, Refusal
from mq.process.connections.unwanted import Unwanted

# An attack must not fill the log as well.
LOG_SECONDS = 60.0

_log = EventLog(__name__)


class WatchedConnection(Connection, Protocol):
    """A connection that can be ended."""

    def end(self, refusal: Refusal) -> None:
        """End the connection, and send the client the reason."""
        ...


class ConnectionWatch:
    """Looks after all connections of a broker. With `ending`, a new one is closed: it came too late."""

    def __init__(
        self,
        limits: ConnectionLimits,
        clock: Clock,
        metrics: Metrics,
        new_request_id: Callable[[], str],
        on_connect: Callable[[], None] = lambda: None,
        users: KernelUsers | None = None,
    ) -> None:
        self.new_request_id, self.on_connect, self.users = new_request_id, on_connect, users
        self.connections: Connections[WatchedConnection] = Connections(limits, clock.monotonic_seconds)
        self.unwanted, self.half_heads = Unwanted(clock), HalfHeads()
        self.ending = False
        # The memory that all connections read to, which belong to one event loop.
        self.scratch = memoryview(bytearray(PIECE_BYTES))
        self._clock = clock
        refused = metrics.requests.connections_refused
        self._refused = {refusal.reason: refused.labels(refusal.reason) for refusal in COUNTED}
        self._logged_seconds: dict[str, float] = {}
        metrics.requests.count_connections(self.connections.__len__)

    def close(self) -> None:
        """Close: the server has ended, and there are no more connections."""
        self.carry_out(self.connections.lingering())
        if self.users is not None:
            self.users.close()

    async def run(self) -> None:
        """End connections that are late, until cancelled."""
        while True:
            await self._clock.sleep(self.connections.limits.sweep_seconds)
            self.carry_out(self.connections.late())

    def left_seconds(self, until_seconds: float) -> float:
        """Return how long it is until that time of day (Unix time)."""
        return until_seconds - self._clock.now_us() / 1e6

    def carry_out(self, decisions: Iterable[Decision[WatchedConnection]]) -> None:
        """End these connections."""
        for connection, refusal in decisions:
            self.end(connection, refusal)

    def end(self, connection: WatchedConnection, refusal: Refusal) -> None:
        """End a connection. Counts it, and logs it once a minute, unless it was merely idle."""
        if refusal is not IDLE:
            self._refused[refusal.reason].inc()
            self._tell(refusal.reason)
        connection.end(refusal)

    def _tell(self, reason: str) -> None:
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds - self._logged_seconds.get(reason, -LOG_SECONDS) >= LOG_SECONDS:
            self._logged_seconds[reason] = now_seconds
            _log.warning(
                "connections_refused", reason=reason, open=len(self.connections), most=self.connections.limits.total
            )
