"""How many connections a broker accepts and what each may hold, from its settings and the limit of open files."""

import ipaddress
import resource
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from mq.base.settings import BrokerSettings

MOST_HEADERS = 256
# The longest meaningful path has some 300 characters. Markers, which are long, are in the query.
LONGEST_PATH_BYTES = 4096
# The parser takes no longer ones.
LONGEST_URI_BYTES = 65_535
# Requests that a client may send ahead of the answers. Each takes some kilobytes once it is parsed.
MOST_AHEAD = 64
# After so many chunks of a body, they have to have so many bytes on average.
MOST_SMALL_CHUNKS = 4096
LEAST_CHUNK_BYTES = 32
# The framing around the chunks of a body may have as many bytes as headers, and those of the body divided by this.
FRAMING_SHARE = 4
# All incomplete headers together. Those of nearly all requests arrive in one piece and never count.
HALF_HEADS_BYTES = 16 * 1024 * 1024
# All parts of bodies together that lie in the connections' buffers because an endpoint does not read them for now. One
# that endpoints read on never counts for long, and one of less than 64 KiB never counts.
UNREAD_BYTES = 64 * 1024 * 1024
# All parts of incomplete WebSocket messages together.
HALF_MESSAGES_BYTES = 64 * 1024 * 1024
LINGER_SECONDS = 2.0

# Descriptors that connections never take: a share of all, for the store, for other brokers, and for pipes.
_KEPT_SHARE = 4
_LEAST_KEPT, _MOST_KEPT = 48, 1024
# Of those, how many may be connections of other brokers that find all others in use.
_SURPLUS_SHARE = 4
_LEAST_CONNECTIONS = 8
_SHARE_OF_BROKERS = 4
# More than a broker opens to another one for all but long polls.
_LEAST_PER_BROKER = 512
_OWN_DESCRIPTORS = Path("/proc/self/fd")
# For systems that do not report how many files are open.
_GUESSED_OPEN = 64
_PREFIX_V6 = 64


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Numbers of connections, what each may hold, and for how long it may keep the broker waiting."""

    total: int
    surplus: int
    per_address: int
    head_bytes: int
    idle_seconds: float
    head_seconds: float
    stall_seconds: float
    slowest_bytes_per_second: int

    @property
    def sweep_seconds(self) -> float:
        """How often to look for connections that are late."""
        return min(1.0, self.idle_seconds / 4, self.head_seconds / 4, self.stall_seconds / 4)


def connection_limits(settings: BrokerSettings, descriptors: int, open_now: int) -> ConnectionLimits:
    """Return the limits of a broker that may have `descriptors` open files, and has `open_now` before connections."""
    kept = _kept(descriptors)
    total = min(settings.connections, max(descriptors - open_now - kept, _LEAST_CONNECTIONS))
    return ConnectionLimits(
        total=total,
        surplus=kept // _SURPLUS_SHARE,
        per_address=min(settings.connections_per_address, total),
        head_bytes=settings.max_head_bytes,
        idle_seconds=settings.idle_timeout,
        head_seconds=settings.head_timeout,
        stall_seconds=settings.stall_timeout,
        slowest_bytes_per_second=settings.slowest_bytes_per_second,
    )


def _kept(descriptors: int) -> int:
    return min(max(descriptors // _KEPT_SHARE, _LEAST_KEPT), _MOST_KEPT)


def limits_with_peer_listener(
    settings: BrokerSettings, descriptors: int, open_now: int
) -> tuple[ConnectionLimits, ConnectionLimits]:
    """Return the limits of the listeners for clients and for brokers: neither takes connections of the other.

    That for brokers has up to as many, or a quarter of the possible open files. There no address has more than half of
    them: a client that fills these without a certificate ends no other client's connections.
    """
    room = descriptors - open_now - _kept(descriptors)
    brokers = min(settings.connections, max(room // _SHARE_OF_BROKERS, _LEAST_CONNECTIONS))
    clients = connection_limits(settings, descriptors - brokers, open_now)
    if not settings.serves_brokers_in_public:
        clients = replace(clients, surplus=0)
    per_address = max(brokers // 2, min(brokers, _LEAST_PER_BROKER))
    return clients, replace(clients, total=brokers, surplus=0, per_address=per_address)


def raise_open_files() -> int:
    """Raise the limit of open files as far as this process may; returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft  # macOS names no limit here, and refuses to be given that
    return 2**31 if hard == resource.RLIM_INFINITY else hard


def open_files() -> int:
    """Return how many files this process has open."""
    try:
        return sum(1 for _ in _OWN_DESCRIPTORS.iterdir())
    except OSError:
        return _GUESSED_OPEN


@lru_cache(maxsize=1024)
def counted_as(address: str) -> str | None:
    """Return the name under which an address' connections count; None for this machine: they do not count.

    A single host has 2^64 addresses of IPv6, which count as one.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None  # a Unix socket has no address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return None if ip.is_loopback else str(ipaddress.ip_network((ip, _PREFIX_V6), strict=False))
        ip = ip.ipv4_mapped
    return None if ip.is_loopback else str(ip)
