"""Tickets: a page opens one stream or socket as its token would, and the token is in no address."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from filer.clock import ManualClock, SystemClock
from filer.stores.memory_store import MemoryStore
from mq.base.errors import Unauthenticated
from mq.http.tickets import MOST_OF_PRINCIPAL, MOST_TICKETS, TICKET_SECONDS, Tickets
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.raw_socket import upgrade
from tests.support.token_maker import TokenMaker

STREAM, SOCKET = "/v1/topics/t/subscribe", "/v1/topics/t/socket"


@pytest.fixture
def maker() -> TokenMaker:
    return TokenMaker(now_seconds=SystemClock().now_us() / 1e6)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
async def broker(maker: TokenMaker, tmp_path: Path) -> AsyncIterator[HttpBroker]:
    keys = tmp_path / "keys.json"
    keys.write_bytes(maker.key_set)
    async with http_broker(MemoryStore(), authorizer="tokens", token_keys=keys) as running:
        (await running.client.put("/v1/topics/t", headers=bearer(maker.token("topic:*:*")))).raise_for_status()
        yield running


async def ticket(broker: HttpBroker, token: str, path: str = STREAM) -> str:
    answer = await broker.client.post(f"{path}/tickets", headers=bearer(token))
    assert answer.status_code == 201 and answer.headers["cache-control"] == "no-store", answer.text
    found: str = answer.json()["ticket"]
    assert token not in answer.text
    return found


async def opened(broker: HttpBroker, address: str, headers: dict[str, str] | None = None) -> int:
    async with broker.client.stream("GET", address, headers=headers) as answer:
        return answer.status_code


async def test_a_ticket_opens_one_stream_as_its_token_would(broker: HttpBroker, maker: TokenMaker) -> None:
    given = await ticket(broker, maker.token("topic:t:read"))
    assert await opened(broker, f"{STREAM}?from=earliest&%74icket={given}") == 200
    again = await broker.client.get(f"{STREAM}?from=earliest&ticket={given}")
    check_problem(again, 401, "unauthenticated", "POST /v1/topics/t/subscribe/tickets")


async def test_a_ticket_opens_one_socket(broker: HttpBroker, maker: TokenMaker) -> None:
    given = await ticket(broker, maker.token("topic:t:publish"), SOCKET)
    request = upgrade().replace(b"/socket ", b"/socket?ticket=%b " % given.encode()) + b"\x88\x80abcd"
    assert (await broker.raw(request)).startswith(b"HTTP/1.1 101 ")
    assert (await broker.raw(request)).startswith(b"HTTP/1.1 401 ")


async def test_a_ticket_is_good_at_its_own_path_alone(broker: HttpBroker, maker: TokenMaker) -> None:
    token = maker.token("topic:*:*")
    (await broker.client.put("/v1/topics/u", headers=bearer(token))).raise_for_status()
    for path in ("/v1/topics/u/subscribe", SOCKET):
        given = await ticket(broker, token)
        check_problem(await broker.client.get(f"{path}?ticket={given}"), 401, "unauthenticated")
        # It is used up by that.
        check_problem(await broker.client.get(f"{STREAM}?ticket={given}"), 401, "unauthenticated")
    given = await ticket(broker, token)
    check_problem(await broker.client.get(f"/v1/topics/t/messages?ticket={given}"), 401, "unauthenticated")
    both = await broker.client.get(f"{STREAM}?ticket={given}", headers=bearer(token))
    check_problem(both, 401, "unauthenticated", "not both")


async def test_a_request_that_is_refused_has_used_up_its_ticket(broker: HttpBroker, maker: TokenMaker) -> None:
    given = await ticket(broker, maker.token("topic:*:*"))
    check_problem(await broker.client.get(f"{STREAM}?from=yesterday&ticket={given}"), 422, "invalid-request")
    check_problem(await broker.client.get(f"{STREAM}?ticket={given}"), 401, "unauthenticated")


async def test_a_ticket_does_not_outlive_what_its_token_may_do(broker: HttpBroker, maker: TokenMaker) -> None:
    now = maker.now_seconds
    short = maker.token("topic:t:read", exp=now + 600)
    given = await ticket(broker, short)
    broker.broker.access.credentials.use(type(broker.broker.access.credentials.known)())  # type: ignore[union-attr]
    check_problem(await broker.client.get(f"{STREAM}?ticket={given}"), 401, "unauthenticated")


async def test_only_who_may_open_a_stream_gets_a_ticket_for_it(broker: HttpBroker, maker: TokenMaker) -> None:
    refused = await broker.client.post(f"{STREAM}/tickets", headers=bearer(maker.token("topic:t:publish")))
    check_problem(refused, 403, "forbidden", "may not read")
    check_problem(await broker.client.post(f"{STREAM}/tickets"), 401, "unauthenticated")


async def test_a_broker_that_asks_for_no_token_gives_no_ticket() -> None:
    async with http_broker(MemoryStore()) as open_to_all:
        (await open_to_all.client.put("/v1/topics/t")).raise_for_status()
        answer: httpx.Response = await open_to_all.client.post(f"{STREAM}/tickets")
        check_problem(answer, 422, "invalid-request", "open the stream without one")


async def test_a_ticket_ends() -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    given = tickets.issue(STREAM, "ann", b"Bearer a")
    await clock.advance(TICKET_SECONDS)
    with pytest.raises(Unauthenticated, match="within 30 s"):
        tickets.redeem(given, STREAM)
    assert len(tickets) == 0


async def test_tickets_that_nobody_uses_are_bounded() -> None:
    tickets = Tickets(ManualClock())
    first = tickets.issue(STREAM, "bob", b"Bearer b")
    for _ in range(MOST_OF_PRINCIPAL + 50):
        tickets.issue(STREAM, "ann", b"Bearer a")
    assert len(tickets) == MOST_OF_PRINCIPAL + 1
    assert tickets.redeem(first, STREAM) == b"Bearer b"
    for number in range(MOST_TICKETS + 50):
        tickets.issue(STREAM, f"user {number}", b"Bearer c")
    assert len(tickets) == MOST_TICKETS
    assert "Bearer" not in repr(tickets._given)
