"""The receiver's side: finds which requests are of brokers of the cluster, and signs the answers."""

from typing import Literal

from filer.clock import Clock
from mq.base.errors import Forbidden
from mq.peer_keys.kept_keys import KeptKeys
from mq.peer_keys.seen_requests import SeenRequests
from mq.peer_keys.signatures import (
    ADDRESS_HEADER,
    ANSWER_HEADER,
    BROKER_HEADER,
    REFUSAL_HEADER,
    TIME_HEADER,
    UNKNOWN,
    Stamp,
    answer_header,
    is_request_of,
    parse_request,
)

Refusal = Literal["receiver", "time", "nonce"]
"""Why a well-signed request is not served: it is for another broker, its time is off, or it was here before.

Its sender may sign it anew and send it again: certainly nothing was done.
"""
WINDOW_SECONDS = 60.0
"""How far the time of a request may be off."""


class NotServed(Forbidden):
    """A request of a broker of the cluster that must not be served."""

    def __init__(self, why: Refusal, message: str) -> None:
        super().__init__(message)
        self.why: Refusal = why


class Incoming:
    """Checks requests to the broker with that id. For one event loop."""

    def __init__(self, keys: KeptKeys, clock: Clock, broker: str) -> None:
        self._keys, self._clock, self._broker = keys, clock, broker
        self._addresses: tuple[str, ...] = ()
        self._seen = SeenRequests(int(WINDOW_SECONDS * 1e6))

    def announced_at(self, *urls: str) -> None:
        """Set the URLs at which the broker is announced: its answers contain them."""
        self._addresses = tuple(url.rstrip("/") for url in urls)

    def stamp(self, header: str, method: str, target: str) -> Stamp:
        """Return the stamp of a request that a broker of the cluster has signed.

        Raises `Forbidden` for any other. Its words help operators that mix up their keys, and no attacker.
        """
        found = parse_request(header)
        if found is None:
            raise Forbidden("this path is only for the brokers of the cluster, and the signature cannot be read")
        stamp, signature = found
        key = self._keys.now.find(stamp.key_id)
        if key is None:
            raise Forbidden(f"the key {stamp.key_id!r:.70} is not among the peer keys of this broker")
        if not is_request_of(key, stamp, signature, method, target):
            raise Forbidden(
                f"the signature by the key {stamp.key_id!r:.70} does not fit: the key has another secret here, or the "
                "request was changed on its way"
            )
        return stamp

    def admit(self, stamp: Stamp) -> None:
        """Note that a request is served. Raises `NotServed`.

        The receiver is the broker's id: each process has its own. A request to an earlier process at the same address
        is for another receiver: so nothing has to be remembered beyond the life of a process.
        """
        now_us = self._clock.now_us()
        if stamp.receiver != self._broker:
            asked = "nobody by name" if stamp.receiver == UNKNOWN else f"broker {stamp.receiver!r:.110}"
            raise NotServed("receiver", f"the request is for {asked}, and this is {self._broker}")
        ahead_seconds = (stamp.time_us - now_us) / 1e6
        if abs(ahead_seconds) > WINDOW_SECONDS:
            raise NotServed(
                "time",
                f"the clock of {stamp.sender!r:.110} is {abs(ahead_seconds):.1f} seconds "
                f"{'ahead of' if ahead_seconds > 0 else 'behind'} this one, or the request took that long: it may be "
                f"{WINDOW_SECONDS:g} seconds",
            )
        if not self._seen.take(stamp.life, stamp.number, stamp.time_us, now_us=now_us):
            raise NotServed("nonce", "this very request was here before, or came too late to tell")

    def answered(
        self, stamp: Stamp, status: int, headers: dict[str, str], digest: str, refusal: Refusal | None = None
    ) -> dict[str, str]:
        """Return the signed headers of the answer to that request."""
        said = {
            **headers,
            BROKER_HEADER: self._broker,
            ADDRESS_HEADER: " ".join(self._addresses),
            TIME_HEADER: str(self._clock.now_us()),
        }
        if refusal is not None:
            said[REFUSAL_HEADER] = refusal
        return {**said, ANSWER_HEADER.lower(): answer_header(self._keys.now.first, stamp.nonce, status, said, digest)}
