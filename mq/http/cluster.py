"""The cluster, probes and metrics."""

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response

from mq.broker import Broker
from mq.http.answers import json_response
from mq.version import VERSION


def cluster_router(broker: Broker) -> APIRouter:
    """Endpoints that tell about the broker and its cluster."""
    router = APIRouter(tags=["cluster"])

    @router.get("/v1/cluster")
    async def cluster() -> Response:
        """Brokers, the leader, and transitions under way."""
        state = "draining" if broker.draining.is_set() else "running"
        brokers = [
            {"broker": b.id, "url": b.url, "zone": b.zone, "version": b.version, "state": state}
            for b in broker.coordinator.brokers()
        ]
        transitions = [
            {"topic": r.topic, "reason": t.reason, "seal": list(t.seal), "open": [s.id for s in t.open]}
            for r in broker.topics.values()
            if (t := r.state.transition) is not None
        ]
        return json_response(
            {
                "cluster": broker.settings.cluster,
                "version": VERSION,
                "leader": broker.coordinator.leader(),
                "brokers": brokers,
                "transitions": transitions,
            }
        )

    @router.get("/healthz")
    async def healthz() -> Response:
        """The process is alive."""
        return json_response({"status": "ok"})

    @router.get("/readyz", responses={503: {"description": "Starting or draining."}})
    async def readyz() -> Response:
        """Requests are welcome."""
        return json_response({"ready": broker.ready}, status=200 if broker.ready else 503)

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics in Prometheus' text format."""
        broker.metrics.pending_bytes.set(broker.front_store.pending_bytes)
        broker.metrics.recent_bytes.set(broker.front_store.recent_bytes)
        return Response(broker.metrics.render(), media_type="text/plain; version=0.0.4")

    return router
