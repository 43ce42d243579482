"""What the framework serves is ready before the first request."""

from fastapi.routing import APIRoute

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.http.app import create_app


def test_no_endpoint_is_analysed_at_the_first_request() -> None:
    """A router that is included is not among the routes itself: what it has is found out when somebody asks."""
    app = create_app(Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), BrokerSettings()))
    served = {route.path for route in app.routes if isinstance(route, APIRoute)}
    assert {"/v1/topics/{topic}", "/v1/topics/{topic}/loads/{load}", "/v1/cluster"} <= served
