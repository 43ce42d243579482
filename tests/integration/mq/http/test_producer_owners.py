"""An id of a producer belongs to the principal that uses it first: another one is refused, and told nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from filer.clock import SystemClock
from filer.slots import SLOTS, equal_ranges
from filer.stores.local.local_store import LocalStore
from filer.stores.memory_store import MemoryStore
from tests.integration.mq.http.test_repeats import FORMS, KEYS, MESSAGES, change_shape
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.publish_paths import is_fast as is_fast
from tests.support.broker.socket_client import checked, socket_client
from tests.support.cluster.http_cluster import HttpCluster
from tests.support.token_maker import TokenMaker

EVERYTHING = ("topic:*:*", "cluster:*")
ANN, BOB = "ann", "bob"


class Principals:
    """Whoever publishes here, each with a token."""

    def __init__(self, folder: Path) -> None:
        self._maker = TokenMaker(now_seconds=SystemClock().now_us() / 1e6)
        self._keys = folder / "keys.json"
        self._keys.write_bytes(self._maker.key_set)
        self._tokens = 0

    @property
    def settings(self) -> dict[str, Any]:
        """Of a broker that takes their tokens."""
        return {"authorizer": "tokens", "token_keys": self._keys, "audit": "off"}

    def headers(self, name: str) -> dict[str, str]:
        """With another token each time, as renewed ones are."""
        self._tokens += 1
        return {"authorization": f"Bearer {self._maker.token(*EVERYTHING, sub=name, jti=f't{self._tokens}')}"}

    async def publish(
        self, broker: HttpBroker, name: str, form: str = "json", *, sequence: int = 1, producer: str = "p"
    ) -> httpx.Response:
        """The same messages each time."""
        arguments = FORMS[form](KEYS)
        return await broker.client.post(
            MESSAGES,
            **{
                **arguments,
                "params": {**arguments.get("params", {}), "producer": producer, "sequence": str(sequence)},
                "headers": {**arguments.get("headers", {}), **self.headers(name)},
            },
        )

    async def create(self, broker: HttpBroker, path: str = "/v1/topics/t", **config: Any) -> None:
        """Create a topic, or a topic group."""
        (await broker.client.put(path, json=config, headers=self.headers(ANN))).raise_for_status()


@pytest.fixture
def principals(tmp_path: Path) -> Principals:
    return Principals(tmp_path)


@pytest.fixture
async def broker(principals: Principals, is_fast: bool) -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore(), is_fast=is_fast, **principals.settings) as served:
        await principals.create(served, segments=4)
        yield served


def check_taken(answer: httpx.Response) -> None:
    problem = check_problem(answer, 409, "producer-taken", "choose another id")
    assert problem.keys() == {"type", "title", "status", "detail", "retryable", "request_id"}
    assert not problem["retryable"] and ANN not in answer.text


@pytest.mark.parametrize("form", FORMS)
async def test_a_producer_of_another_is_refused_in_every_form(
    broker: HttpBroker, principals: Principals, form: str
) -> None:
    first = await principals.publish(broker, ANN, form)
    assert first.status_code == 200
    for sequence in (1, 2):
        check_taken(await principals.publish(broker, BOB, form, sequence=sequence))
    assert (await principals.publish(broker, ANN, form)).content == first.content, "also with a renewed token"
    assert (await principals.publish(broker, ANN, form, sequence=2)).status_code == 200
    assert (await principals.publish(broker, BOB, form, producer="q")).status_code == 200


@pytest.mark.parametrize("asked", [{"value": "x"}, [{"value": "x"}, {"value": "y"}]], ids=["one", "several"])
async def test_a_producer_of_another_is_refused_by_a_socket(
    broker: HttpBroker, principals: Principals, asked: object
) -> None:
    first = orjson.loads((await principals.publish(broker, ANN)).content)
    headers = {name: principals.headers(name) for name in (ANN, BOB)}
    async with (
        socket_client(broker.url, "t", additional_headers=headers[ANN]) as of_ann,
        socket_client(broker.url, "t", additional_headers=headers[BOB]) as of_bob,
    ):
        for sequence in (1, 2):
            refused = await of_bob.ask(publish=asked, producer="p", sequence=sequence)
            checked(refused["problem"], "producer-taken", "choose another id")
        messages = FORMS["json"](KEYS)["json"]["messages"]
        assert (await of_ann.ok(publish=messages, producer="p", sequence=1)) == first
        assert await of_bob.ok(publish=asked, producer="q", sequence=1)
    check_taken(await principals.publish(broker, ANN, producer="q"))


async def test_of_two_at_once_one_is_refused(broker: HttpBroker, principals: Principals) -> None:
    answers = await asyncio.gather(*(principals.publish(broker, name, "raw") for name in (ANN, BOB, ANN, BOB)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 409, 409]
    assert answers[0].content == answers[2].content and answers[1].status_code == answers[3].status_code


async def test_members_of_a_topic_group_have_producers_of_their_own(principals: Principals) -> None:
    async with http_broker(MemoryStore(), **principals.settings) as broker:
        await principals.create(broker, "/v1/topic-groups/g", topics=["t", "u"])
        first = await principals.publish(broker, ANN)
        assert first.status_code == 200
        check_taken(await principals.publish(broker, BOB))
        of_u = {"json": {"messages": [{"value": "x"}]}, "params": {"producer": "p", "sequence": "1"}}
        answer = await broker.client.post("/v1/topics/u/messages", headers=principals.headers(BOB), **of_u)
        assert answer.status_code == 200
        assert (await principals.publish(broker, ANN)).content == first.content


@pytest.mark.parametrize("drains", [True, False], ids=["drained", "not drained"])
async def test_a_producer_stays_its_owners_across_restarts_splits_and_merges(
    tmp_path: Path, principals: Principals, drains: bool
) -> None:
    answers = set()
    for parts in (1, 4, 1):
        store = LocalStore(tmp_path / "store", clock=SystemClock())
        async with http_broker(store, **principals.settings) as broker:
            await principals.create(broker)
            answers.add((await principals.publish(broker, ANN)).content)
            check_taken(await principals.publish(broker, BOB))
            await change_shape(broker.broker, equal_ranges(parts))
            check_taken(await principals.publish(broker, BOB, sequence=2))
            answers.add((await principals.publish(broker, ANN)).content)
            if not drains:
                await broker.broker.close()
    assert len(answers) == 1


async def test_an_id_that_two_used_in_segments_that_merge_is_refused_to_both(
    broker: HttpBroker, principals: Principals
) -> None:
    """Neither is told what the other has stored there."""

    async def publish_to(name: str, key: str) -> httpx.Response:
        params = {"key": key, "producer": "p", "sequence": "1"}
        return await broker.client.post(MESSAGES, content=b"x", params=params, headers=principals.headers(name))

    keys: dict[int, str] = {}
    for key in map("key {}".format, range(40)):
        probe = await broker.client.post(MESSAGES, content=b"", params={"key": key}, headers=principals.headers(ANN))
        keys[probe.json()["positions"][0]["segment"]] = key
    assert (await publish_to(ANN, keys[0])).status_code == (await publish_to(BOB, keys[1])).status_code == 200
    check_taken(await publish_to(BOB, keys[0]))
    await change_shape(broker.broker, [(0, SLOTS)])
    for name in (ANN, BOB):
        for key in (keys[0], keys[1]):
            check_taken(await publish_to(name, key))


async def test_whoever_is_trusted_without_a_credential_owns_nothing_and_is_refused_nothing(
    tmp_path: Path, principals: Principals
) -> None:
    """So a broker that asks for no tokens any more, or not yet, goes on with what is there."""
    answers = set()
    for settings in ({"authorizer": "any"}, principals.settings, {"authorizer": "any"}):
        async with http_broker(LocalStore(tmp_path / "store", clock=SystemClock()), **settings) as broker:
            await principals.create(broker)
            answers.add((await principals.publish(broker, ANN)).content)
            if settings is principals.settings:
                check_taken(await principals.publish(broker, BOB))
            else:
                answers.add((await principals.publish(broker, BOB)).content)
    assert len(answers) == 1


async def test_a_producer_of_another_is_refused_by_way_of_another_broker(principals: Principals) -> None:
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b", **principals.settings)
        await principals.create(cluster.up["a"], segments=4)
        first = await principals.publish(cluster.up["a"], ANN)
        assert first.status_code == 200
        for name in ("a", "b"):
            for form in ("json", "raw"):
                check_taken(await principals.publish(cluster.up[name], BOB, form, sequence=1))
            assert (await principals.publish(cluster.up[name], ANN)).content == first.content
    finally:
        await cluster.stop_all()
