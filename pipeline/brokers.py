"""Requests of jobs to the brokers."""

import httpx

from braidmq import Client
from braidmq.errors import BraidMQError
from braidmq.read.store_of_file import store_of_file
from braidmq.remedies import in_commands
from braidmq.transport.patience import patience
from braidmq.transport.tls import broker_tls
from filer.stores.store_address import StoreAddress
from pipeline.errors import JobFailed

TIMEOUT_SECONDS = 30.0


def check_topic(url: str, topic: str, timeout_seconds: float | None = None) -> None:
    """Raise a `BraidError` unless a broker answers that the topic is there."""
    with Client(url, **patience(timeout_seconds)) as client:
        client.topic(topic)


def announce_rollups(url: str, topic: str, timeout_seconds: float | None = None) -> list[str]:
    """Ask every broker to look for roll-ups that others wrote; returns a line for each broker that could not be asked.

    All brokers are asked, because a segment's maintainer changes. A broker that was not asked goes on as before: it
    finds the roll-ups when it becomes the maintainer of the segment, and no reader misses anything until then.
    """
    try:
        with Client(url, **patience(timeout_seconds)) as client:
            brokers = {broker.broker: broker.url or client.urls[0] for broker in client.cluster().brokers}
    except BraidMQError as error:
        return [in_commands(error)]
    failures = []
    for broker, address in brokers.items():
        try:
            answer = httpx.post(
                f"{address}/v1/topics/{topic}/upkeep",
                timeout=timeout_seconds or TIMEOUT_SECONDS,
                verify=broker_tls(),
                trust_env=False,
            )
            answer.raise_for_status()
        except httpx.HTTPError as error:
            failures.append(f"broker {broker} at {address}: {error}")
    return failures


def store_of_files(url: str, topic: str, timeout_seconds: float | None = None) -> StoreAddress:
    """Return where the topic's files are, and how a broker reaches them. Raises `JobFailed` if there are none yet."""
    with Client(url, **patience(timeout_seconds)) as client:
        file = next(iter(client.files(topic)), None)
    if file is None:
        raise JobFailed(f"topic {topic!r} has no files yet, so the address of the store is not known: give --store")
    return store_of_file(topic, file)
