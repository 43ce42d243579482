"""The settings of a client by one number: how long to go on while no broker answers."""

from typing import TypedDict

from braidmq.defaults import (
    DEFAULT_CONNECT_TIMEOUT_SECONDS,
    DEFAULT_TIMEOUT_SECONDS,
    LONGEST_DELIVERY_TIMEOUT_SECONDS,
)
from braidmq.transport.retry import Retry


class Patience(TypedDict, total=False):
    """The settings of `AsyncClient` and `Client` that say how long they wait for brokers."""

    timeout_seconds: float
    connect_timeout_seconds: float
    delivery_timeout_seconds: float
    retry: Retry


def patience(seconds: float | None) -> Patience:
    """Return the settings of a client whose every call gives up after so many seconds; the defaults for None."""
    if seconds is None:
        return {}
    return {
        "timeout_seconds": min(seconds, DEFAULT_TIMEOUT_SECONDS),
        "connect_timeout_seconds": min(seconds, DEFAULT_CONNECT_TIMEOUT_SECONDS),
        "delivery_timeout_seconds": min(seconds, LONGEST_DELIVERY_TIMEOUT_SECONDS),
        "retry": Retry(give_up_after_seconds=seconds, for_all_calls=True),
    }
