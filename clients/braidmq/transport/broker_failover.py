"""Asking one broker after the other: which were tried, and why each failed."""

import copy

from braidmq.errors import BraidMQError, ConnectionBroken, NoConnection, NotABroker, OutcomeUnknown, Unavailable
from braidmq.transport.addresses import Addresses


class BrokerFailover:
    """The brokers' addresses as one call tries them: each once before the call pauses."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._failures: dict[str, BraidMQError] = {}

    def next_address(self) -> str:
        """Return the current address, or the next one that this call has not tried yet."""
        return self._addresses.next(self._failures) or self._addresses.current

    @property
    def untried(self) -> int:
        """How many addresses have not failed since the last pause."""
        return sum(address not in self._failures for address in self._addresses.all)

    def has_failed(self, address: str) -> bool:
        """Whether this address has failed since the last pause."""
        return address in self._failures

    def record(self, address: str, failure: BraidMQError) -> bool:
        """Record a failure, and return whether another address may succeed without a pause."""
        self._failures.pop(address, None)  # so that the latest failure is the last one
        self._failures[address] = failure
        if not _is_failure_of_broker(failure):
            return False
        self._addresses.failed(address)
        return self._addresses.next(self._failures) is not None

    def reset(self) -> None:
        """After a pause, try every address once more."""
        self._failures.clear()

    def with_earlier_failures(self, failure: BraidMQError) -> BraidMQError:
        """Return the failure, with the failures of the other addresses in `tried_before`."""
        before = {address: each for address, each in self._failures.items() if each is not failure}
        if not before:
            return failure
        extended = copy.copy(failure)
        extended.tried_before = before
        return extended


def _is_failure_of_broker(failure: BraidMQError) -> bool:
    """Whether this broker cannot answer or cannot be reached, so that another one may succeed."""
    if isinstance(failure, Unavailable):
        return failure.problem is None or failure.problem.slug in ("draining", "http")
    if isinstance(failure, OutcomeUnknown):
        return failure.problem is None or failure.problem.slug == "http"
    return isinstance(failure, NoConnection | ConnectionBroken | NotABroker)
