"""The time from sending a publish until a subscriber on the same machine has the message, with little traffic."""

import http.client
import json
import queue
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from bench.harness.publishing import TOPIC
from bench.harness.server_process import BenchFailed, broker
from bench.harness.wrk import RAW

MESSAGES_PER_SECOND = 50
WARM_UP_MESSAGES = 50
TIMEOUT_SECONDS = 30.0
TARGET_MS = 20.0


@dataclass(frozen=True, slots=True)
class TailLatency:
    """Milliseconds from sending the first byte of a publish to reading the line of the message."""

    median_ms: float
    p99_ms: float
    messages: int


def measure_tail(*, seconds: float, show_progress: Callable[[str], None]) -> TailLatency:
    """Publish one message at a time on one connection, and read them on another, with an NDJSON subscription."""
    with broker() as (url, _):
        show_progress("tail latency")
        httpx.put(f"{url}/v1/topics/{TOPIC}", json={}).raise_for_status()
        [delays_ms] = tail_delays_ms(url, [url], seconds=seconds)
    cuts = statistics.quantiles(delays_ms, n=100)
    return TailLatency(statistics.median(delays_ms), cuts[98], len(delays_ms))


def tail_delays_ms(publish_at: str, subscribe_at: Sequence[str], *, seconds: float) -> list[list[float]]:
    """The delays of the same messages at a subscriber of each broker, without the warm-up messages."""
    subscribers = [_subscribe(urlsplit(url).netloc) for url in subscribe_at]
    sent = _publish(urlsplit(publish_at).netloc, WARM_UP_MESSAGES + round(seconds * MESSAGES_PER_SECOND))
    return [_delays_ms(sent, arrived)[WARM_UP_MESSAGES:] for arrived in subscribers]


def _subscribe(address: str) -> "queue.SimpleQueue[tuple[int, float]]":
    """A queue of the messages that arrive, with the time of arrival."""
    arrived: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
    listening = threading.Event()
    threading.Thread(target=_listen, args=(address, listening, arrived), daemon=True).start()
    if not listening.wait(TIMEOUT_SECONDS):
        raise BenchFailed("the subscription did not begin")
    return arrived


def _listen(address: str, listening: threading.Event, arrived: "queue.SimpleQueue[tuple[int, float]]") -> None:
    """Read each line when it arrives. Ends with the broker."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)
    path = f"/v1/topics/{TOPIC}/subscribe?from=latest"
    connection.request("GET", path, headers={"accept": "application/x-ndjson"})
    response = connection.getresponse()
    for line in response:
        now = time.perf_counter()
        document = json.loads(line)
        listening.set()
        if "message" in document:
            arrived.put((int(document["message"]["value"]), now))
        if "end" in document:
            return


def _publish(address: str, count: int) -> list[float]:
    """Publish at an even pace; return when each message was sent."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)
    connection.connect()
    sent: list[float] = []
    started = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, started + number / MESSAGES_PER_SECOND - time.perf_counter()))
        sent.append(time.perf_counter())
        connection.request("POST", f"/v1/topics/{TOPIC}/messages", str(number), {"content-type": RAW})
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise BenchFailed(f"a publish was answered {response.status}")
    connection.close()
    return sent


def _delays_ms(sent: list[float], arrived: "queue.SimpleQueue[tuple[int, float]]") -> list[float]:
    delays: list[float] = []
    for expected, started in enumerate(sent):
        try:
            number, came = arrived.get(timeout=TIMEOUT_SECONDS)
        except queue.Empty:
            raise BenchFailed(f"message {expected} of {len(sent)} never arrived") from None
        if number != expected:
            raise BenchFailed(f"message {number} arrived instead of {expected}")
        delays.append((came - started) * 1000)
    return delays
