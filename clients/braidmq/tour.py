"""Asking one broker after the other: which were tried, and why each failed."""

import copy

from braidmq.addresses import Addresses
from braidmq.errors import BraidMQError, ConnectionBroken, NoConnection, NotABroker, OutcomeUnknown, Unavailable


class Tour:
    """One call's way around the brokers' addresses, each tried once before the call pauses."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._failures: dict[str, BraidMQError] = {}

    def next_address(self) -> str:
        """Where to try next: the address in use, or the next one that this call has not tried yet."""
        return self._addresses.next(self._failures) or self._addresses.current

    def has_tried(self, address: str) -> bool:
        """Whether this address has failed since the last pause."""
        return address in self._failures

    def goes_on_after(self, address: str, failure: BraidMQError) -> bool:
        """Note a failure; whether another address may do better, without a pause."""
        self._failures.pop(address, None)  # the last stands last
        self._failures[address] = failure
        if not _failed_by_broker(failure):
            return False
        self._addresses.failed(address)
        return self._addresses.next(self._failures) is not None

    def begin_again(self) -> None:
        """After a pause every address may be tried once more."""
        self._failures.clear()

    def told(self, failure: BraidMQError) -> BraidMQError:
        """The failure, telling of the other addresses that were tried before it."""
        before = {address: each for address, each in self._failures.items() if each is not failure}
        if not before:
            return failure
        told = copy.copy(failure)
        told.tried_before = before
        return told


def _failed_by_broker(failure: BraidMQError) -> bool:
    """Whether it is this broker that cannot, or cannot be reached: another one may be able to."""
    if isinstance(failure, Unavailable):
        return failure.problem is None or failure.problem.slug in ("draining", "http")
    if isinstance(failure, OutcomeUnknown):
        return failure.problem is None or failure.problem.slug == "http"
    return isinstance(failure, NoConnection | ConnectionBroken | NotABroker)
