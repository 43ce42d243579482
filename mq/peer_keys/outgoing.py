"""The caller's side: signs requests, and finds which answers are of the broker that was asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from filer.clock import Clock
from filer.event_log import EventLog
from mq.peer_keys.kept_keys import KeptKeys
from mq.peer_keys.signatures import (
    ADDRESS_HEADER,
    ANSWER_HEADER,
    BROKER_HEADER,
    REFUSAL_HEADER,
    TIME_HEADER,
    UNKNOWN,
    Stamp,
    is_answer_of,
    parse_answer,
    request_header,
)

MOST_ADDRESSES = 2000
TOLD_SECONDS = 5.0
"""A smaller difference between clocks is not worth a log line."""

_log = EventLog(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """A broker at an address: its id, and the lead of its clock over ours in microseconds."""

    broker: str = UNKNOWN
    ahead_us: int = 0


class Unproven(Exception):
    """An answer that no caller may rely on; why, as text."""


class Outgoing:
    """Signs requests of the broker with that id. For one event loop."""

    def __init__(self, keys: KeptKeys, clock: Clock, broker: str) -> None:
        self._keys, self._clock, self._broker = keys, clock, broker
        self._life, self._numbers = clock.entropy(16).hex(), count()
        self._known: dict[str, Known] = {}

    def sign(self, method: str, url: str, target: str, digest: str) -> tuple[Stamp, str]:
        """Return the stamp of a request to the broker at that URL, and its header."""
        known, key = self._known.get(url, Known()), self._keys.now.first
        time_us = self._clock.now_us() + known.ahead_us
        stamp = Stamp(key.id, time_us, self._life, next(self._numbers), known.broker, self._broker, digest)
        return stamp, request_header(key, stamp, method, target)

    def check(self, url: str, stamp: Stamp, status: int, headers: Mapping[str, str], digest: str) -> str | None:
        """Check that a broker of the cluster gave this answer, to this very request, at this address.

        Returns None if it served the request; else the word by which it refused it: then nothing was done. Raises
        `Unproven`.
        """
        found = parse_answer(headers.get(ANSWER_HEADER.lower(), ""))
        if found is None:
            raise Unproven("it is not signed")
        key_id, signature = found
        key = self._keys.now.find(key_id)
        if key is None:
            raise Unproven(f"it is signed by the key {key_id!r:.70}, which is not among the peer keys here")
        if not is_answer_of(key, signature, stamp.nonce, status, headers, digest):
            raise Unproven("its signature does not fit: it is of another key, to another request, or was changed")
        if url not in headers.get(ADDRESS_HEADER, "").split():
            # Something leads our requests to another broker than we mean.
            raise Unproven(f"it is of {headers.get(BROKER_HEADER)!r:.110}, which is announced at another address")
        refusal = headers.get(REFUSAL_HEADER)
        if refusal is None and headers.get(BROKER_HEADER) != stamp.receiver:
            raise Unproven("it is of another broker than was asked")
        return refusal

    def learn(self, url: str, headers: Mapping[str, str]) -> None:
        """Learn from a checked refusal which broker listens there, and what the time is there.

        Learns only what a key of the cluster has signed, so the worst that others can do is to delay it.
        """
        ahead_us = int(headers.get(TIME_HEADER, "0")) - self._clock.now_us()
        if abs(ahead_us) >= TOLD_SECONDS * 1e6:
            _log.warning("broker_clock_differs", url=url, ahead_seconds=round(ahead_us / 1e6, 1))
        else:
            ahead_us = 0
        self._known.pop(url, None)
        self._known[url] = Known(headers[BROKER_HEADER], ahead_us)
        if len(self._known) > MOST_ADDRESSES:
            del self._known[next(iter(self._known))]
