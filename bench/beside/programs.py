"""The peers' programs, as far as this machine can have them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.harness.server_process import BenchFailed
from bench.peers.kafka import Kafka, kafka
from bench.peers.nats import Nats, nats
from bench.peers.python_packages import python_packages

T = TypeVar("T")


@dataclass(slots=True)
class Programs:
    """What there is; `missing` says why something is not."""

    kafka: Kafka | None = None
    nats: Nats | None = None
    python: Path | None = None
    """The folder of the peers' Python clients."""
    missing: list[str] = field(default_factory=list)


def programs() -> Programs:
    """Fetch or build what is not there yet. Kafka's topics are made with its Python client, so it needs that too."""
    found = Programs()
    found.python = _get(found, "the Python clients of Kafka and NATS", python_packages)
    found.nats = _get(found, "NATS", nats)
    if found.python is not None:
        found.kafka = _get(found, "Kafka", kafka)
    return found


def _get(found: Programs, what: str, get: Callable[[], T]) -> T | None:
    try:
        return get()
    except BenchFailed as error:
        found.missing.append(f"without {what}: {error}")
        return None
