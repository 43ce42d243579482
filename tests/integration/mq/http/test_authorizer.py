"""Whose requests are served: by address, and not those that a page of another site has a browser make."""

import os

import httpx
import orjson
import pytest

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.http.app import create_asgi
from tests.support.broker.from_user import from_user
from tests.support.broker.http_broker import HttpBroker, http_broker
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


REQUEST = "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example{path}",
        "http://evil.example:8080{path}",
        "HTTP://evil.example{path}",
        "https://evil.example{path}",
        "http://localhost@evil.example{path}",
        "http://evil.example{path}?of=http://localhost/",
    ],
)
@pytest.mark.parametrize("more", ["", "Upgrade: h2c\r\nConnection: Upgrade\r\n"], ids=["plain", "upgrade"])
@pytest.mark.parametrize("path", ["/v1/topics", "/v1/topics/t/messages"])
async def test_the_host_of_a_whole_address_counts_and_not_the_header(
    memory_broker: HttpBroker, target: str, more: str, path: str
) -> None:
    """RFC 9112 §3.2.2: a page behind another name had only to send its request as a client sends it to a proxy."""
    (await memory_broker.client.put("/v1/topics/t")).raise_for_status()
    given = REQUEST.format(target=target.format(path=path), host="localhost", more=more)
    head, _, body = (await memory_broker.raw(given.encode())).partition(b"\r\n\r\n")
    refused = orjson.loads(body)
    assert head.startswith(b"HTTP/1.1 403 ") and refused["type"] == "urn:braidmq:forbidden"
    assert "evil.example" in refused["detail"] and "not one of its names" in refused["detail"]


@pytest.mark.parametrize(
    "target", ["http://localhost/v1/topics", "http://127.0.0.1:1/v1/topics", "/v1/topics?after=b://c"]
)
async def test_a_whole_address_of_this_machine_is_served(memory_broker: HttpBroker, target: str) -> None:
    host = "evil.example" if "://l" in target or "://1" in target else "localhost"
    given = REQUEST.format(target=target, host=host, more="")
    assert (await memory_broker.raw(given.encode())).startswith(b"HTTP/1.1 200 ")


async def test_a_broker_for_everybody_takes_what_proxies_pass_on() -> None:
    broker = Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), BrokerSettings(authorizer="any"))
    transport = httpx.ASGITransport(create_asgi(broker), client=("10.0.0.9", 1))
    forwarded = {"x-forwarded-for": "10.0.0.7", "via": "1.1 gateway", "host": "queue.example.org"}
    async with httpx.AsyncClient(transport=transport, base_url="http://b", headers=forwarded) as client:
        assert (await client.get("/openapi.json")).status_code == 200


async def test_a_setting_names_more_hosts() -> None:
    settings = BrokerSettings(
        allowed_hosts="queue.lan, 10.0.0.5", advertise="http://announced.lan:8080", host="own.lan"
    )
    broker = Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), settings)
    app = from_user(create_asgi(broker), os.geteuid())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as it:
        for host in ("queue.lan:8080", "10.0.0.5", "announced.lan", "own.lan:8080", "[::1]:8080"):
            assert (await it.get("/openapi.json", headers={"host": host})).status_code == 200, host
        check_problem(await it.get("/openapi.json", headers={"host": "lan"}), 403, "forbidden", "--allowed-hosts")


async def test_the_brokers_own_pages_may_do_what_their_reader_may(memory_broker: HttpBroker) -> None:
    own = {"origin": memory_broker.url, "sec-fetch-site": "same-origin"}
    assert (await memory_broker.client.put("/v1/topics/t", headers=own)).status_code == 201
    assert (await memory_broker.client.post("/v1/topics/t/messages", headers=own, content=b"x")).status_code == 200


@pytest.mark.parametrize(("address", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.0.0.1", 403)])
@pytest.mark.parametrize("authorizer", ["user", "loopback"])
async def test_by_default_only_this_machine_is_served(address: str, status: int, authorizer: str) -> None:
    async with outsider(BrokerSettings.model_validate({"authorizer": authorizer}), address) as client:
        answer = await client.get("/openapi.json")
    assert answer.status_code == status
    if status == 403:
        check_problem(answer, 403, "forbidden", "does not allow observe requests from this address")


def test_that_is_what_the_tests_ask_of_the_default() -> None:
    assert BrokerSettings().authorizer == "user"


@pytest.mark.parametrize("headers", [{}, {"host": "probe.lan"}, {"x-forwarded-for": "10.0.0.7"}])
@pytest.mark.parametrize("address", ["10.0.0.9", "127.0.0.1"])
async def test_probes_are_answered_whoever_asks_and_tell_nothing(address: str, headers: dict[str, str]) -> None:
    async with outsider(BrokerSettings(), address) as client:
        for path in ("/healthz", "/livez"):
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        answer = await client.get("/readyz", headers=headers)
        assert answer.status_code == 503  # it was not started
        is_known = address == "127.0.0.1" and not headers
        assert answer.json() == (
            {"ready": False, "status": "starting", "problems": []} if is_known else {"ready": False}
        )
        for method, path in (("GET", "/metrics"), ("POST", "/healthz"), ("GET", "/v1/cluster")):
            answer = await client.request(method, path, headers=headers)
            assert (answer.status_code == 403) == (not is_known), path


@pytest.mark.parametrize("address", ["10.0.0.9", "127.0.0.1"])
async def test_a_probe_may_look_at_the_status_alone(address: str) -> None:
    async with outsider(BrokerSettings(), address) as client:
        statuses = [(await client.head(path)).status_code for path in ("/healthz", "/livez", "/readyz")]
    assert statuses == [200, 200, 503]


async def test_a_broker_that_is_ready_says_so_to_a_probe_from_anywhere(memory_broker: HttpBroker) -> None:
    answer = await memory_broker.client.get("/readyz", headers={"host": "10.1.2.3:8080"})
    assert (answer.status_code, answer.json()) == (200, {"ready": True})


async def test_a_setting_shows_the_metrics_to_everybody() -> None:
    async with outsider(BrokerSettings(metrics="any"), "10.0.0.9") as client:
        assert (await client.get("/metrics")).text.startswith("# HELP")
        assert (await client.get("/metrics", headers={"x-forwarded-for": "10.0.0.7"})).status_code == 200
        check_problem(await client.get("/v1/topics"), 403, "forbidden")
        check_problem(await client.post("/metrics"), 403, "forbidden")


PAGE = "https://console.example"


async def test_pages_of_named_origins_may_use_the_broker_and_others_may_not() -> None:
    async with http_broker(MemoryStore(), cors_origin=f"{PAGE}, http://localhost:3000") as broker:
        client, of_page = broker.client, {"origin": PAGE, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
        asked = {
            "access-control-request-method": "PUT",
            "access-control-request-headers": "content-type,braid-header-a",
        }
        preflight = await client.options("/v1/topics/t", headers={**of_page, **asked})
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, PAGE)
        assert "PUT" in preflight.headers["access-control-allow-methods"]
        assert "braid-header-a" in preflight.headers["access-control-allow-headers"]
        # So do browsers ask where the page comes from the internet, and the broker is in a private network.
        private = {**of_page, **asked, "access-control-request-private-network": "true"}
        preflight = await client.options("/v1/topics/t", headers=private)
        assert (preflight.status_code, preflight.headers["access-control-allow-private-network"]) == (200, "true")
        assert (await client.put("/v1/topics/t", headers=of_page)).status_code == 201
        answer = await client.post("/v1/topics/t/messages", headers=of_page, content=b"x")
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
        answer = await client.get("/v1/topics/nothing", headers=of_page)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (404, PAGE)
        assert "braid-marker" in answer.headers["access-control-expose-headers"].lower()
        async with client.stream("GET", "/v1/topics/t/subscribe?from=earliest", headers=of_page) as stream:
            assert stream.headers["access-control-allow-origin"] == PAGE
        other = {**of_page, "origin": "https://evil.example"}
        for question in (asked, private):
            assert (await client.options("/v1/topics/t", headers={**question, **other})).status_code == 400
        answer = await client.get("/v1/topics", headers=other)
        check_problem(answer, 403, "forbidden", "a web page of https://evil.example")
        assert "access-control-allow-origin" not in answer.headers
        # A page that may is of no help to one that has its name resolve to this machine.
        answer = await client.get("/v1/topics", headers={**of_page, "host": "evil.example"})
        check_problem(answer, 403, "forbidden", "not one of its names")


async def test_every_page_may_use_a_broker_that_serves_everybody() -> None:
    async with http_broker(MemoryStore(), cors_origin="*", authorizer="any") as broker:
        answer = await broker.client.put("/v1/topics/t", headers={"origin": PAGE, "sec-fetch-site": "cross-site"})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (201, "*")


async def test_without_the_setting_no_page_gets_in(memory_broker: HttpBroker) -> None:
    asked = {"origin": PAGE, "access-control-request-method": "PUT"}
    check_problem(await memory_broker.client.options("/v1/topics/t", headers=asked), 403, "forbidden", PAGE)


def outsider(settings: BrokerSettings, address: str) -> httpx.AsyncClient:
    """A client at that address, as the user who runs the broker, which was not started."""
    broker = Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), settings)
    transport = httpx.ASGITransport(from_user(create_asgi(broker), os.geteuid()), client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")
