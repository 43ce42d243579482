"""With the default authorizer only the user who runs the broker is served, and root; on every path.

The kernel is told whose the next connection is. tests/integration/mq/process/test_other_users.py asks the real one.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from filer.stores.memory_store import MemoryStore
from mq.machine_users.kernel_users import KernelUsers
from mq.machine_users.sides import End
from mq.security.grants import parse_grants
from mq.security.static_tokens import added
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.socket_client import socket_client

OTHER = 4321
PUBLISH = b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n%b\r\nx"
TOKEN = "braidmq_of-bob"


class Told:
    """Takes the next connections for those of `user`."""

    def __init__(self) -> None:
        self.user_now: int | None = os.geteuid()
        self.asked = 0

    def user(self, client: End, server: End) -> int | None:
        self.asked += 1
        return self.user_now

    def close(self) -> None:
        return


@contextlib.asynccontextmanager
async def as_user(broker: HttpBroker, told: Told, user: int | None) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose connection is that user's."""
    told.user_now = user
    async with httpx.AsyncClient(base_url=broker.url, timeout=30, trust_env=False) as client:
        yield client


async def test_the_user_and_root_are_served_and_nobody_else() -> None:
    told = Told()
    async with http_broker(MemoryStore(), users=KernelUsers(told, frozenset())) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        assert told.asked == 1
        for path in ("/v1/topics", "/v1/topics/t/messages", "/metrics"):
            (await broker.client.get(path)).raise_for_status()
        assert told.asked == 1, "a connection is asked for once"
        for user in (os.geteuid(), 0):
            async with as_user(broker, told, user) as client:
                for _ in range(3):  # the third one is served by the bytes of its head
                    (await client.post("/v1/topics/t/messages", content=b"x")).raise_for_status()
        before = await broker.end_offsets("t")
        for user, why in ((OTHER, f"not the user with the number {OTHER}"), (None, "does not tell whose")):
            async with as_user(broker, told, user) as client:
                for _ in range(3):
                    answer = await client.post("/v1/topics/t/messages", content=b"x")
                    check_problem(answer, 403, "forbidden", why, "--authorizer loopback", "token")
                for method, path in (("GET", "/v1/topics"), ("PUT", "/v1/topics/u"), ("GET", "/metrics")):
                    check_problem(await client.request(method, path), 403, "forbidden", why)
                assert (await client.get("/livez")).json() == {"status": "ok"}
            with pytest.raises(InvalidStatus) as refused:
                async with socket_client(broker.url, "t"):
                    pass
            assert refused.value.response.status_code == 403
            # One behind the other, in one piece: none is taken for its neighbour.
            answers = await broker.raw(PUBLISH % b"" * 3 + PUBLISH % b"Connection: close\r\n")
            assert answers.count(b"HTTP/1.1 403 ") == 4 and answers.count(b"HTTP/1.1 ") == 4
        assert await broker.end_offsets("t") == before


async def test_a_connection_stays_whose_it_was() -> None:
    told = Told()
    async with http_broker(MemoryStore(), users=KernelUsers(told, frozenset())) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        async with socket_client(broker.url, "t") as socket, as_user(broker, told, OTHER) as other:
            answers = await asyncio.gather(socket.ask(publish={"value": "a"}), other.get("/v1/topics"))
            assert "ok" in answers[0] and answers[1].status_code == 403


async def test_another_user_needs_a_token_and_with_it_has_what_it_grants(tmp_path: Path) -> None:
    file, told = tmp_path / "tokens.toml", Told()
    file.write_text(added(b"", "bob", TOKEN, parse_grants(["topic:t:publish"]), None))
    users = KernelUsers(told, frozenset())
    async with http_broker(MemoryStore(), users=users, static_tokens=file) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        told.user_now = OTHER
        bearer = {"authorization": f"Bearer {TOKEN}"}
        async with as_user(broker, told, OTHER) as other:
            for _ in range(3):
                (await other.post("/v1/topics/t/messages", headers=bearer, content=b"x")).raise_for_status()
                check_problem(await other.post("/v1/topics/t/messages", content=b"x"), 403, "forbidden", "a token")
            answer = await other.get("/v1/topics/t/messages", headers=bearer)
            check_problem(answer, 403, "forbidden", "'bob' may not read topic 't'")
            forged = {"authorization": "Bearer braidmq_of-somebody"}
            check_problem(await other.get("/v1/topics", headers=forged), 401, "unauthenticated")
            # A token is trusted for itself: also through a proxy, and by another name.
            passed = {**bearer, "via": "1.1 gateway", "host": "queue.example.org"}
            assert (await other.post("/v1/topics/t/messages", headers=passed, content=b"x")).status_code == 200
        # Who runs the broker tries a token by sending it.
        answer = await broker.client.get("/v1/topics/t/messages", headers=bearer)
        check_problem(answer, 403, "forbidden", "'bob' may not read topic 't'")
        assert sum((await broker.end_offsets("t")).values()) == 4


async def test_all_users_of_the_machine_are_served_where_that_is_asked_for() -> None:
    told = Told()
    users = KernelUsers(told, frozenset())
    async with (
        http_broker(MemoryStore(), users=users, authorizer="loopback") as broker,
        as_user(broker, told, OTHER) as other,
    ):
        assert (await other.put("/v1/topics/t")).status_code == 201
        assert (await other.post("/v1/topics/t/messages", content=b"x")).status_code == 200
