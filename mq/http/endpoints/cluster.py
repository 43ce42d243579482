"""The cluster, probes and metrics."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from filer.errors import InvalidInput
from leader.membership.coordinator import BrokerInfo
from mq.base.errors import NotFound, PeerSilent, PeerUnreachable
from mq.base.readiness import zookeeper_problem
from mq.base.version import VERSION
from mq.broker import Broker
from mq.http.endpoints.topics import damaged_objects
from mq.http.principals import principal_of
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import CLUSTER, DRAIN, END_DRAIN, HEALTHZ, LIVEZ, METRICS, READYZ
from mq.limits.steps import Steps, in_turns
from mq.security.principal import Principal

# A line of metrics takes about as long as some ten lines of a page.
_STEP_BYTES = 8 * 1024


def cluster_router(broker: Broker) -> APIRouter:
    """The endpoints about the broker and its cluster."""
    router = new_router("cluster")

    @router.serves(CLUSTER)
    async def cluster(request: Request) -> Response:
        """Describe the cluster: brokers, the leader, transitions in progress, and what is known to be damaged.

        A client that may not observe the cluster gets the brokers' addresses, which clients need, and only the facts of
        topics that it may observe. `peer_url` and `peer_keys`, how brokers call each other, are null then.

        `topics_loading` is how many topics a broker without a cluster has still to read after its start: they are not
        counted yet. It is null until their names are known. `problems` has `zookeeper-lost` while this broker is out of
        touch with ZooKeeper: `leader` is null then, and `brokers` are those that it knew last.
        """
        return json_response(await _described(broker, principal_of(request)))

    @router.serves(DRAIN)
    async def drain(name: str) -> Response:
        """Make a broker, by id or name, hand over its segments. It keeps running, without segments."""
        info = _called(broker.coordinator.brokers(), name)
        segments = await _answer_of(broker, info, broker.drainer.hand_over_to_others, broker.peers.drain)
        return json_response({"broker": info.id, "segments": segments}, status=202)

    @router.serves(END_DRAIN)
    async def undrain(name: str) -> Response:
        """Let a broker, by id or name, own segments again after it was drained."""
        info = _called(broker.coordinator.brokers(), name)
        segments = await _answer_of(broker, info, broker.drainer.take_part_again, broker.peers.undrain)
        return json_response({"broker": info.id, "segments": segments})

    @router.head("/livez", include_in_schema=False)
    @router.head("/healthz", include_in_schema=False)
    @router.serves(LIVEZ)
    @router.serves(HEALTHZ)
    async def healthz() -> Response:
        """The process is alive, whatever its store does."""
        return json_response({"status": "ok"})

    @router.head("/readyz", include_in_schema=False)
    @router.serves(READYZ)
    async def readyz() -> Response:
        """Requests are welcome. What it cannot do at the moment is in `problems`."""
        told = broker.readiness
        return json_response(told.document(), status=200 if told.ready else 503)

    @router.serves(METRICS)
    async def metrics() -> Response:
        """Metrics in Prometheus' text format."""
        text = await in_turns(_rendered(broker), broker.turns.others)
        return Response(text, media_type="text/plain; version=0.0.4")

    return router


async def _described(broker: Broker, principal: Principal) -> dict[str, Any]:
    """The cluster, as far as the principal may know it."""
    may_observe = principal.grants.allow_on_cluster("observe")
    owned = await broker.segment_counts.by_owner() if may_observe else None
    brokers = [
        _broker(broker, info, None if owned is None else owned[info.id]) for info in broker.coordinator.brokers()
    ]
    transitions = [
        {"topic": r.topic, "reason": t.reason, "seal": list(t.seal), "open": [s.id for s in t.open]}
        for r in broker.topics.values()
        if (t := r.state.transition) is not None and principal.sees(r.topic)
    ]
    return {
        "cluster": broker.settings.cluster,
        "version": VERSION,
        # Out of touch it would be the last leader that was known, which may have died since.
        "leader": None if (lost := broker.zookeeper_lost) is not None else broker.coordinator.leader(),
        "brokers": brokers,
        "peer_keys": _peer_keys(broker) if may_observe else None,
        "transitions": transitions,
        "topics_loading": broker.loading.left if broker.settings.zookeeper is None else 0,
        "problems": [] if lost is None else [zookeeper_problem(lost)],
        "damaged": [each for each in _damaged_topics(broker) if principal.sees(str(each["topic"]))],
    }


def _damaged_topics(broker: Broker) -> list[dict[str, str | int]]:
    """The topics with damaged or missing objects that this broker knows of, by the scrub or by its readers."""
    counts = broker.scrubber.findings.topics()
    counts |= {topic: n for topic, runtime in broker.topics.items() if (n := len(damaged_objects(broker, runtime)))}
    return [{"topic": topic, "objects": counts[topic]} for topic in sorted(counts)]


def _called(brokers: Sequence[BrokerInfo], name: str) -> BrokerInfo:
    """The broker of that id or name. Raises `NotFound`, and `InvalidInput` if several brokers have that name."""
    found = [b for b in brokers if b.id == name] or [b for b in brokers if b.id.partition(".")[0] == name]
    if not found:
        raise NotFound("broker", f"there is no live broker {name!r:.80}; there are {_ids(brokers)}")
    if len(found) > 1:
        raise InvalidInput(f"several brokers are called {name!r}: name one by its id, {_ids(found)}")
    return found[0]


def _ids(brokers: Sequence[BrokerInfo]) -> str:
    return ", ".join(b.id for b in brokers)


async def _answer_of(
    broker: Broker, info: BrokerInfo, here: Callable[[], Awaitable[int]], there: Callable[[str | None], Awaitable[int]]
) -> int:
    """The answer of that broker, which may be this one. Raises `PeerUnreachable` if it does not answer."""
    if info.id == broker.id:
        return await here()
    try:
        return await there(broker.peers.url_of(info))
    except (PeerUnreachable, PeerSilent) as error:
        raise PeerUnreachable(f"broker {info.id} does not answer: {error}") from error


def _rendered(broker: Broker) -> Steps[bytes]:
    """All metrics, with the current value of each gauge."""
    metrics, coordinator = broker.metrics, broker.coordinator
    metrics.requests.pending_bytes.set(broker.front_store.pending_bytes)
    metrics.requests.front_store_limit_bytes.set(broker.front_store.limit_bytes)
    metrics.requests.recent_bytes.set(broker.front_store.recent_bytes)
    metrics.requests.read_bytes.set(broker.read_budget.held_bytes)
    metrics.requests.show_storage(
        {topics: (use.ratio, use.age_seconds) for topics, use in broker.quotas.storage_used().items()}
    )
    metrics.cluster.ready.set(broker.readiness.ready)
    metrics.cluster.leads.set(coordinator.leads())
    metrics.cluster.see_touch(coordinator.in_touch())
    metrics.cluster.brokers.set(len(coordinator.brokers()))
    metrics.cluster.segments_owned.set(broker.drainer.segments_owned)
    metrics.upkeep.store_clock_ahead.set(-broker.maintenance.deletions.ahead_seconds)
    metrics.upkeep.scrub_oldest_seconds.set(broker.scrubber.oldest_seconds)
    metrics.upkeep.deletion_paused.set(broker.maintenance.deletions.is_paused)
    if broker.access.policy is not None:
        metrics.cluster.policy_version.set(broker.access.policy.policy.version)
    metrics.cluster.brokers_wanted.set(broker.traffic_reports.brokers_wanted())
    pieces: list[bytes] = []
    step_bytes = 0
    for piece in metrics.pieces():
        pieces.append(piece)
        step_bytes += len(piece)
        if step_bytes >= _STEP_BYTES:
            step_bytes = 0
            yield
    return b"".join(pieces)


def _broker(broker: Broker, info: BrokerInfo, segments: int | None) -> dict[str, str | int | None]:
    """A broker as answers show it. Without `segments`, it is for clients that may not know the broker's work."""
    draining = info.draining or (info.id == broker.id and broker.draining.is_set())
    return {
        "broker": info.id,
        "url": info.url,
        "peer_url": None if segments is None else info.peer_url or None,
        "zone": info.zone,
        "version": info.version,
        "state": "draining" if draining else "running",
        "segments": segments,
        "pending_bytes": None if segments is None else _pending_bytes(broker, info),
    }


def _peer_keys(broker: Broker) -> str:
    """Whether other brokers must prove their identity by keys."""
    if broker.peer_keys is None:
        return "none"
    return "optional" if broker.settings.peer_keys_optional else "required"


def _pending_bytes(broker: Broker, info: BrokerInfo) -> int | None:
    """The bytes that a broker has not stored yet; None if this broker does not know them."""
    return broker.front_store.pending_bytes if info.id == broker.id else broker.traffic_reports.pending_bytes(info.id)
