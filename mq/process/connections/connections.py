"""Decides which connections are admitted, give way, or are late. It knows no sockets: time and sizes come in."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from mq.process.connections.held_bytes import HeldBytes
from mq.process.connections.limits import (
    HALF_HEADS_BYTES,
    HALF_MESSAGES_BYTES,
    LINGER_SECONDS,
    UNREAD_BYTES,
    ConnectionLimits,
    counted_as,
)
from mq.process.connections.pace import Pace
from mq.process.connections.refusals import (
    ADDRESS,
    ANSWER_LATE,
    BODY_LATE,
    CROWDED,
    GAVE_WAY,
    HEAD_LATE,
    IDLE,
    NO_ROOM,
    Refusal,
)


class Connection(Protocol):
    """What a connection shows of itself."""

    received_bytes: int

    @property
    def may_send(self) -> bool:
        """Whether the broker reads what the client sends. If it does not, the client is not at fault."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        ...


C = TypeVar("C", bound=Connection)
T = TypeVar("T")


class Decision(NamedTuple, Generic[C]):
    """A connection that is to be ended, and why."""

    connection: C
    refusal: Refusal


class Connections(Generic[C]):
    """All connections of a broker, by what they wait for.

    Past the limit, the connection that has kept the broker waiting longest for a request gives way. It has nothing
    under way, so nothing is lost with it, and a client that holds connections without using them loses those first.
    Only if each has a request under way, new ones are refused. Beyond the limit a few more are accepted, for other
    brokers alone: whether they are brokers is not known until their headers have arrived, so that others are refused
    then.
    """

    def __init__(self, limits: ConnectionLimits, now: Callable[[], float]) -> None:
        self.limits = limits
        self._now = now
        self._addresses: dict[C, str | None] = {}
        self._per_address: Counter[str] = Counter()
        self._surplus: set[C] = set()
        # Each in the order in which it began to wait.
        self._idle: OrderedDict[C, float] = OrderedDict()
        self._half_heads: HeldBytes[C] = HeldBytes(HALF_HEADS_BYTES)
        self._lingering: OrderedDict[C, float] = OrderedDict()
        self._unread: HeldBytes[C] = HeldBytes(UNREAD_BYTES)
        self._half_messages: HeldBytes[C] = HeldBytes(HALF_MESSAGES_BYTES)
        self._bodies: Pace[C] = Pace(limits.stall_seconds, limits.slowest_bytes_per_second)
        self._answers: Pace[C] = Pace(limits.stall_seconds, limits.slowest_bytes_per_second)

    def __len__(self) -> int:
        return len(self._addresses)

    def admit(self, connection: C, address: str) -> list[Decision[C]]:
        """Count a new connection. Returns the connections to end for it, which may include itself."""
        name = counted_as(address)
        self._addresses[connection] = name
        ended: list[Decision[C]] = []
        if name is not None:
            self._per_address[name] += 1
            if self._per_address[name] > self.limits.per_address:
                return [Decision(connection, ADDRESS)]
        if len(self._addresses) > self.limits.total:
            longest = self._longest_waiting()
            if longest is not None:
                ended.append(Decision(longest, GAVE_WAY))
            elif len(self._addresses) > self.limits.total + self.limits.surplus:
                return [Decision(connection, NO_ROOM)]
            else:
                self._surplus.add(connection)
        self._idle[connection] = self._now()
        return ended

    def gone(self, connection: C) -> None:
        """Note that a connection has been closed, or will be at once."""
        self._stop_waiting(connection)
        self._lingering.pop(connection, None)
        self._surplus.discard(connection)
        name = self._addresses.pop(connection, None)
        if name is not None:
            self._per_address[name] -= 1
            if not self._per_address[name]:
                del self._per_address[name]

    def linger(self, connection: C) -> None:
        """Note that a connection was sent the reason for its end, and may read it for a moment."""
        self._stop_waiting(connection)
        self._surplus.discard(connection)
        self._lingering[connection] = self._now()

    def idle(self, connection: C) -> None:
        """Note that all requests of a connection are answered."""
        self._idle[connection] = self._now()

    def head_part(self, connection: C, size_bytes: int) -> list[Decision[C]]:
        """Note `size_bytes` of a request's headers, whose rest is missing. Returns the connections that give way."""
        self._idle.pop(connection, None)
        return [Decision(one, HEAD_LATE) for one in self._half_heads.hold(connection, self._now(), size_bytes)]

    def head_complete(self, connection: C, *, is_broker: bool) -> Refusal | None:
        """Note that the headers of a request are complete. Returns why it is not served, if so."""
        self._idle.pop(connection, None)
        if self._half_heads:
            self._half_heads.release(connection)
        if self._surplus and connection in self._surplus:
            if len(self._addresses) <= self.limits.total:
                self._surplus.discard(connection)
            elif not is_broker:
                return NO_ROOM
        return None

    def body_part(self, connection: C) -> None:
        """Note that the headers of a request are there, and its body is not complete."""
        self._bodies.begin(connection, self._now(), connection.received_bytes)

    def half_message(self, connection: C, size_bytes: int) -> list[Decision[C]]:
        """Note so much of a message of a WebSocket. Returns the connections that give way."""
        return [Decision(one, CROWDED) for one in self._half_messages.hold(connection, self._now(), size_bytes)]

    def body_complete(self, connection: C) -> None:
        """Note that the body, or the message, is complete."""
        self._bodies.end(connection)
        self._half_messages.release(connection)

    def unread(self, connection: C, size_bytes: int) -> list[Decision[C]]:
        """Note so much of a body that the endpoint does not read for now. Returns the connections that give way."""
        return [Decision(one, CROWDED) for one in self._unread.hold(connection, self._now(), size_bytes)]

    def read_on(self, connection: C) -> None:
        """Note that the endpoint reads on."""
        self._unread.release(connection)

    def answer_held_up(self, connection: C) -> None:
        """Note that the client takes an answer more slowly than it is made."""
        self._answers.begin(connection, self._now(), -connection.unsent_bytes)

    def answer_goes_on(self, connection: C) -> None:
        """Note that the client has taken most of it."""
        self._answers.end(connection)

    def late(self) -> list[Decision[C]]:
        """Return the connections that have kept the broker waiting for too long, and why each is to be ended."""
        now_seconds = self._now()
        limits = self.limits
        heads = self._half_heads.since() if self._half_heads else {}
        return [
            *(Decision(one, IDLE) for one in _overdue(self._idle, now_seconds - limits.idle_seconds)),
            *(Decision(one, HEAD_LATE) for one in _overdue(heads, now_seconds - limits.head_seconds)),
            *(Decision(one, IDLE) for one in _overdue(self._lingering, now_seconds - LINGER_SECONDS)),
            *(Decision(one, BODY_LATE) for one in self._bodies.late(now_seconds, _received)),
            *(Decision(one, ANSWER_LATE) for one in self._answers.late(now_seconds, _taken)),
        ]

    def lingering(self) -> list[Decision[C]]:
        """Return the connections that may still read why they were ended, but not after the server ends."""
        return [Decision(one, IDLE) for one in self._lingering]

    def _longest_waiting(self) -> C | None:
        """Return a refused connection, or else the one that has kept the broker waiting longest for a request."""
        if self._lingering:
            return next(iter(self._lingering))
        idle = next(iter(self._idle.items()), None)
        half = self._half_heads.first()
        if idle is None or (half is not None and half[1] < idle[1]):
            return None if half is None else half[0]
        return idle[0]

    def _stop_waiting(self, connection: C) -> None:
        self._idle.pop(connection, None)
        self._half_heads.release(connection)
        self._unread.release(connection)
        self._half_messages.release(connection)
        self._bodies.end(connection)
        self._answers.end(connection)


def _overdue(began_seconds: Mapping[T, float], before_seconds: float) -> Iterator[T]:
    for one, began in began_seconds.items():
        if began > before_seconds:
            return
        yield one


def _received(connection: Connection) -> int | None:
    return connection.received_bytes if connection.may_send else None


def _taken(connection: Connection) -> int:
    return -connection.unsent_bytes
