"""A broker as a process: starts it, serves HTTP until it is asked to stop, then drains it."""

import asyncio
import contextlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop
from prometheus_client import ProcessCollector

from filer import keys
from filer.clock import Clock, SystemClock
from filer.errors import BraidError
from filer.event_log import EventLog
from filer.refused_imports import keep_pandas_out
from filer.stores.decorators.instrumented_store import InstrumentedStore
from filer.stores.decorators.retrying_store import RetryingStore
from filer.stores.decorators.store_health import StoreHealth
from filer.stores.decorators.store_metrics import StoreMetrics
from filer.stores.open_store import open_store
from filer.stores.store import Store, StreamingStore
from filer.stores.store_address import StoreAddress
from filer.topic.incarnation import Incarnation
from leader.membership.coordinator import Coordinator, InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.machine_users.kernel_users import kernel_users_of
from mq.peer_keys.kept_keys import VARIABLE, KeptKeys, kept_keys
from mq.process.drain_watch import log_what_is_left, what_is_left
from mq.process.freed_memory import Heap, give_back, glibc_heap
from mq.process.garbage import collect_all_seldom, collect_less_often, spare_what_is_loaded
from mq.process.http_server import HttpServers
from mq.process.listen import Listening, advertised_url, bind
from mq.process.log_output import LimitedHandler
from mq.process.loop_watch import LoopWatch
from mq.process.memory_limit import memory_limit_bytes
from mq.process.memory_pool import choose_memory_pool
from mq.process.process_collector import BrokerProcessCollector
from mq.process.stop_signals import StopSignals
from mq.process.store_collector import StoreCollector
from mq.tls.broker_certificates import BrokerCertificates
from mq.tracing.open_tracer import open_tracer
from mq.tracing.tracer import Tracer

# How long an encoder thread that returns from C++ may wait for the interpreter while the event loop runs (the default
# is 5 ms). Encoding a file has several such waits, and all publishers of the file wait with it.
SWITCH_INTERVAL_SECONDS = 0.0001

_log = EventLog(__name__)


class DrainTimeout(BraidError):
    """The broker could not store in time all that it had accepted."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A serving broker: its URL on this machine, the URI of its store, and the URL for brokers.

    `peer_url` is None if brokers have no port of their own here.
    """

    url: str
    store: str
    settings: BrokerSettings
    peer_url: str | None = None


def serve(settings: BrokerSettings, on_ready: Callable[[Serving], None], log: LimitedHandler) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the process at once. `log` writes the log.

    Raises `InvalidConfig` for certificates that cannot be used, and if the system cannot find users;
    `CannotListen`, what opening the store and `Broker.start` raise, and `DrainTimeout`.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    choose_memory_pool()
    heap = glibc_heap()
    keep_pandas_out()
    if (users := kernel_users_of(settings)) is not None:
        # Whether the system can find users is known before other brokers see this one.
        users.close()
    with contextlib.ExitStack() as sockets:
        bound = [sockets.enter_context(contextlib.closing(bind(settings.host, settings.port)))]
        if settings.peer_port is not None:
            sock = bind(settings.peer_address, settings.peer_port, "--peer-host and --peer-port")
            bound.append(sockets.enter_context(contextlib.closing(sock)))
        # Read before anything else begins: without a valid certificate no listener starts.
        called_at = settings.peer_advertise or advertised_url(bound[-1])
        certificates = BrokerCertificates(settings, SystemClock(), urlsplit(called_at).hostname or "")
        contexts = (certificates.clients.server, certificates.brokers.server)
        listening = [Listening(sock, tls) for sock, tls in zip(bound, contexts, strict=False)]
        runner = sockets.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(_serve(settings, certificates, listening, on_ready, log, heap))


async def _serve(
    settings: BrokerSettings,
    certificates: BrokerCertificates,
    listening: Sequence[Listening],
    on_ready: Callable[[Serving], None],
    log: LimitedHandler,
    heap: Heap | None,
) -> None:
    stop = StopSignals()
    clock = SystemClock()
    aside = [
        asyncio.create_task(log.tell_in_time(), name="what the log leaves out"),
        asyncio.create_task(certificates.watch(), name="certificates"),
    ]
    loop_watch = LoopWatch(clock)
    aside.append(asyncio.create_task(loop_watch.run(), name="event loop"))
    if heap is not None:
        aside.append(asyncio.create_task(give_back(heap, clock), name="freed memory"))
    tracer = open_tracer(settings, os.environ)
    try:
        peer_keys = kept_keys(settings.peer_keys, os.environ.get(VARIABLE), clock)
        broker = await _broker(settings, clock, tracer, stop, certificates, peer_keys, loop_watch)
        if broker is not None:
            await _run(broker, listening, stop, on_ready)
    finally:
        for task in aside:
            task.cancel()
        # Last of all, so that everything that ended until now goes out too.
        await tracer.close()


async def _run(
    broker: Broker, listening: Sequence[Listening], stop: StopSignals, on_ready: Callable[[Serving], None]
) -> None:
    settings, (clients, *brokers) = broker.settings, listening
    store = broker.store.uri(keys.CLUSTER).removesuffix(f"/{keys.CLUSTER}")
    serving = Serving(clients.local_url, store, settings, brokers[0].local_url if brokers else None)
    url = settings.advertise or clients.advertised_url
    peer_url = (settings.peer_advertise or brokers[0].advertised_url) if brokers else ""
    try:
        start = asyncio.create_task(broker.start(url, peer_url))
        if await _finished_before_stop(start, stop):
            await serve_until_stop(broker, listening, stop, lambda: on_ready(serving))
    finally:
        await broker.close()


async def _broker(
    settings: BrokerSettings,
    clock: Clock,
    tracer: Tracer,
    stop: StopSignals,
    certificates: BrokerCertificates,
    peer_keys: KeptKeys | None,
    loop_watch: LoopWatch,
) -> Broker | None:
    """Return the broker to start; None if the process is asked to stop before the store has answered."""
    store_metrics, health = StoreMetrics(), StoreHealth(clock)
    address = StoreAddress(
        settings.store_url,
        settings.s3_endpoint,
        settings.s3_region,
        settings.s3_addressing,
        resend_seconds=settings.s3_resend_after,
    )
    store = open_store(address, clock)
    # Below the retries: each attempt is a request of its own, which the store may bill.
    counted = InstrumentedStore(store, clock=clock, metrics=store_metrics, health=health)
    retrying = RetryingStore(counted, clock=clock, limit_seconds=settings.read_timeout)
    # If the store does not answer, that is reported from the first request on.
    watching = asyncio.create_task(health.watch(), name="store health")
    finding = asyncio.create_task(_incarnation(settings, retrying, clock), name="incarnation")
    try:
        if not await _finished_before_stop(finding, stop):
            await retrying.close()
            return None
    except BaseException:
        await retrying.close()
        raise
    finally:
        watching.cancel()
    broker = Broker(
        retrying,
        clock,
        _coordinator(settings, clock),
        settings,
        payloads=store if isinstance(store, StreamingStore) else None,
        store_health=health,
        tracer=tracer,
        incarnation=finding.result(),
        peer_tls=certificates.clients.peers,
        peer_listener_tls=certificates.brokers.peers,
        peer_keys=peer_keys,
    )
    broker.metrics.registry.register(StoreCollector(store_metrics, health))
    # Here and not in the broker: several brokers may live in one process.
    ProcessCollector(registry=broker.metrics.registry)
    broker.metrics.registry.register(
        BrokerProcessCollector(
            certificates.expires_seconds, lambda: loop_watch.blocked_seconds, memory_limit_bytes(Path("/"))
        )
    )
    return broker


async def _incarnation(settings: BrokerSettings, store: Store, clock: Clock) -> Incarnation:
    """Return the incarnation: a broker without a cluster goes on where its predecessor stopped, others begin anew."""
    if settings.zookeeper is None:
        return await Incarnation.find(store, clock, settings.broker)
    return Incarnation(None, clock, settings.broker)


def _coordinator(settings: BrokerSettings, clock: Clock) -> Coordinator:
    if settings.zookeeper is None:
        return InProcessCoordinator()
    # Imported here: a broker without ZooKeeper starts sooner without the client.
    from mq.process.clustered import clustered_coordinator

    return clustered_coordinator(settings, os.environ, clock)


async def serve_until_stop(
    broker: Broker, listening: Sequence[Listening], stop: StopSignals, on_started: Callable[[], None]
) -> None:
    """Serve a started broker until it is asked to stop, then drain it. Raises `DrainTimeout`.

    It listens first for clients, then for brokers, if they have a port of their own. With TLS, it serves only TLS.
    """
    servers = HttpServers(broker, listening, on_started)
    spare_what_is_loaded()
    collect_less_often()
    aside = [
        *(asyncio.create_task(watch.run(), name="connections") for watch in servers.watches),
        asyncio.create_task(collect_all_seldom(broker.clock), name="garbage"),
    ]
    running = asyncio.create_task(servers.run())
    try:
        if not await _finished_before_stop(running, stop, cancel=False):
            await _drain(broker, servers, running)
    finally:
        for task in aside:
            task.cancel()
        for watch in servers.watches:
            watch.close()


async def _drain(broker: Broker, servers: HttpServers, running: "asyncio.Task[None]") -> None:
    timeout_seconds = broker.settings.drain_timeout
    began = broker.clock.monotonic_seconds()
    telling = asyncio.create_task(log_what_is_left(broker, servers.unanswered), name="what is left")
    try:
        # The broker drains first, while the servers still send their answers; then the connections close.
        await asyncio.wait_for(broker.drain(), timeout_seconds)
    except TimeoutError:
        # Publishers get an answer that says so. Otherwise the server would cut their connections.
        broker.end_publishes()
        raise DrainTimeout(
            f"not everything accepted was stored within {timeout_seconds:g} seconds ({what_is_left(broker)}); "
            "what was acknowledged is stored, or held by followers"
        ) from None
    finally:
        left = timeout_seconds - (broker.clock.monotonic_seconds() - began)
        servers.exit(max(1, math.ceil(left)))
        await running
        telling.cancel()


async def _finished_before_stop(task: asyncio.Task[Any], stop: StopSignals, *, cancel: bool = True) -> bool:
    """Wait for the task or for a signal. True if the task ended; raises what the task raised."""
    asked = asyncio.create_task(stop.asked.wait())
    await asyncio.wait([task, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if task.done():
        await task
        return True
    if cancel:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return False
