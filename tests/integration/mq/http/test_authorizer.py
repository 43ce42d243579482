"""Whose requests are served: by address, and not those that a page of another site has a browser make."""

import httpx
import pytest

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.authorizer import Action
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.http.app import create_asgi
from mq.http.dispatcher import Dispatcher
from tests.support.broker.http_broker import HttpBroker
from tests.support.broker.problems import check_problem

CHANGES = [
    ("PUT", "/v1/topics/u"),
    ("DELETE", "/v1/topics/t"),
    ("POST", "/v1/topics/t/messages"),
    ("POST", "/v1/topics/t/uploads"),
    ("POST", "/v1/topics/t/segments/0/split"),
    ("POST", "/v1/cluster/brokers/broker/drain"),
]


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_page_of_another_site_changes_nothing(memory_broker: HttpBroker, method: str, path: str) -> None:
    client = memory_broker.client
    (await client.put("/v1/topics/t")).raise_for_status()
    before = (await client.get("/v1/topics/t")).json()
    answer = await client.request(method, path, headers={"origin": "http://evil.example"}, content=b"x")
    check_problem(answer, 403, "forbidden", "a web page of http://evil.example")
    rebound = {"host": "evil.example:8080", "origin": "http://evil.example:8080"}
    answer = await client.request(method, path, headers=rebound, content=b"x")
    check_problem(answer, 403, "forbidden", "not one of its names")
    assert (await client.get("/v1/topics/t")).json() == before
    assert [each["topic"] for each in (await client.get("/v1/topics")).json()["topics"]] == ["t"]


READS = ["/v1/topics", "/v1/topics/t/messages", "/v1/topics/t/subscribe", "/v1/topics/t/files", "/metrics", "/docs"]


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"host": "evil.example:8080"}, "not one of its names"),
        ({"origin": "http://evil.example"}, "a web page of http://evil.example"),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, "a web page of another site"),
        ({"x-forwarded-for": "10.0.0.7"}, "a proxy has passed on (x-forwarded-for)"),
        ({"forwarded": "for=10.0.0.7"}, "a proxy has passed on (forwarded)"),
        ({"via": "1.1 cache"}, "a proxy has passed on (via)"),
    ],
)
async def test_neither_a_page_of_another_site_nor_a_proxy_reads_anything(
    memory_broker: HttpBroker, path: str, headers: dict[str, str], why: str
) -> None:
    (await memory_broker.client.put("/v1/topics/t")).raise_for_status()
    check_problem(await memory_broker.client.get(path, headers=headers), 403, "forbidden", why)
    answer = await memory_broker.client.post("/v1/topics/t/messages", headers=headers, content=b"x")
    check_problem(answer, 403, "forbidden", why)


async def test_a_broker_for_everybody_takes_what_proxies_pass_on() -> None:
    broker = Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), BrokerSettings(authorizer="any"))
    transport = httpx.ASGITransport(create_asgi(broker), client=("10.0.0.9", 1))
    forwarded = {"x-forwarded-for": "10.0.0.7", "via": "1.1 gateway", "host": "queue.example.org"}
    async with httpx.AsyncClient(transport=transport, base_url="http://b", headers=forwarded) as client:
        assert (await client.get("/healthz")).status_code == 200


async def test_a_setting_names_more_hosts() -> None:
    settings = BrokerSettings(
        allowed_hosts="queue.lan, 10.0.0.5", advertise="http://announced.lan:8080", host="own.lan"
    )
    broker = Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), settings)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create_asgi(broker)), base_url="http://localhost") as it:
        for host in ("queue.lan:8080", "10.0.0.5", "announced.lan", "own.lan:8080", "[::1]:8080"):
            assert (await it.get("/healthz", headers={"host": host})).status_code == 200, host
        check_problem(await it.get("/healthz", headers={"host": "lan"}), 403, "forbidden", "--allowed-hosts")


async def test_the_brokers_own_pages_may_do_what_their_reader_may(memory_broker: HttpBroker) -> None:
    own = {"origin": memory_broker.url, "sec-fetch-site": "same-origin"}
    assert (await memory_broker.client.put("/v1/topics/t", headers=own)).status_code == 201
    assert (await memory_broker.client.post("/v1/topics/t/messages", headers=own, content=b"x")).status_code == 200


class Watchers:
    """Lets everybody look, and nobody change anything."""

    def allows(self, principal: str, action: Action, resource: str) -> bool:
        return action in ("observe", "read")


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_who_may_only_look_changes_nothing(method: str, path: str) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app(Watchers())), base_url="http://b") as client:
        check_problem(await client.request(method, path), 403, "forbidden", "does not allow")
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(("address", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.0.0.1", 403)])
async def test_by_default_only_this_machine_is_served(address: str, status: int) -> None:
    transport = httpx.ASGITransport(app(None), client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/healthz")
    assert answer.status_code == status
    if status == 403:
        check_problem(answer, 403, "forbidden", "does not allow observe requests from this address")


def app(authorizer: Watchers | None) -> Dispatcher:
    """The app of a broker that was not started."""
    broker = Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), BrokerSettings())
    return create_asgi(broker, authorizer)
