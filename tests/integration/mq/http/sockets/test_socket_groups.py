"""Groups over a socket: messages claimed as credit allows, acks and commits beside them, members and their sessions."""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from filer.stores.memory_store import MemoryStore
from tests.support.broker.group_requests import group, publish
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.socket_client import SocketClient, checked, socket_client

TOPIC = "/v1/topics/t"
QUEUE = {"group": "g", "mode": "queue"}
STREAM = {"group": "g", "mode": "stream"}


@pytest.fixture
async def broker() -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore(), maintenance_interval=3600) as running:
        (await running.client.put(TOPIC, json={"segments": 2})).raise_for_status()
        yield running


@pytest.fixture
async def socket(broker: HttpBroker) -> AsyncIterator[SocketClient]:
    async with socket_client(broker.url, "t") as opened:
        yield opened


def parts(delivered: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"claim": each["claim"], "id": each["id"]} for each in delivered["messages"]]}


async def deliveries(socket: SocketClient, count: int) -> list[dict[str, Any]]:
    """What comes until there are so many messages."""
    found: list[dict[str, Any]] = []
    while sum(len(each["messages"]) for each in found) < count:
        found.append(await socket.delivery())
    return found


# -- queue groups ----------------------------------------------------------------------------------------------------


async def test_a_queue_is_worked_through(broker: HttpBroker, socket: SocketClient) -> None:
    assert (await socket.ok(subscribe={**QUEUE, "credit": 3}))["group"] == "g"
    await publish(broker, *"abcde")
    got = await deliveries(socket, 3)
    assert sum(len(each["messages"]) for each in got) == 3, "no more than the credit"
    assert (await group(broker))["in_flight"] == 3
    for each in got:
        assert (await socket.ok(ack=parts(each)))["accepted"] == len(each["messages"])
    await socket.ok(credit=10)
    for each in await deliveries(socket, 2):
        await socket.ok(ack=parts(each), group="g")
    told = await group(broker)
    assert (told["lag"]["messages"], told["in_flight"]) == (0, 0)


async def test_what_is_released_comes_again_and_what_is_extended_stays(
    broker: HttpBroker, socket: SocketClient
) -> None:
    await publish(broker, "a")
    await socket.ok(subscribe={**QUEUE, "credit": 5, "lease_seconds": 2.5})
    (got,) = await deliveries(socket, 1)
    assert got["lease_seconds"] == 2.5
    assert (await socket.ok(extend={**parts(got), "lease_seconds": 20.5}))["accepted"] == 1
    assert (await socket.ok(release={**parts(got), "delay_seconds": 0, "reason": "later"}))["accepted"] == 1
    (again,) = await deliveries(socket, 1)
    assert again["messages"][0]["deliveries"] == 2
    await socket.problem("claim-lost", ack=parts(got))
    assert (await socket.ok(ack=parts(again)))["accepted"] == 1
    assert (await socket.ok(ack=parts(again)))["accepted"] == 1, "a repeated ack is answered as the first time"


async def test_claims_come_as_arrow(broker: HttpBroker, socket: SocketClient) -> None:
    await publish(broker, *"abc")
    await socket.ok(subscribe={**QUEUE, "credit": 5, "format": "arrow"})
    rows, acked = [], 0
    while acked < 3:
        got = await socket.delivery("arrow")
        rows += pa.ipc.open_stream(io.BytesIO(got["arrow"])).read_all()["value"].to_pylist()
        acked += (await socket.ok(ack={"messages": [{"claim": each["claim"]} for each in got["claims"]]}))["accepted"]
    assert sorted(rows) == [b"a", b"b", b"c"]


async def test_many_acks_are_under_way_at_once(broker: HttpBroker, socket: SocketClient) -> None:
    await publish(broker, *[f"{number}" for number in range(300)])
    await socket.ok(subscribe={**QUEUE, "credit": 300})
    asked = []
    for each in await deliveries(socket, 300):
        for message in each["messages"]:
            asked.append(await socket.send(ack={"messages": [{"claim": message["claim"], "id": message["id"]}]}))
    await socket.until(lambda: all(id_ in socket.answers for id_ in asked))
    assert all(socket.answers[id_]["ok"]["accepted"] == 1 for id_ in asked)
    assert (await group(broker))["lag"]["messages"] == 0


def acks(token: str, case: str) -> bytes:
    """The value of an ack that has something twice."""
    part = b'{"claim":"%b","id":"0-0"}' % token.encode()
    return {
        "a message": b'{"messages":[%b,%b]}' % (part, part),
        "a name": b'{"messages":[],"messages":[%b]}' % part,
        "a name of a message": b'{"messages":[{"id":"0-0",%b]}' % part[1:],
        "an escaped name": b'{"messages":[],"message\\u0073":[%b]}' % part,
    }[case]


@pytest.mark.parametrize("case", ["a message", "a name", "a name of a message", "an escaped name"])
async def test_what_is_there_twice_is_refused_as_over_http(memory_broker: HttpBroker, case: str) -> None:
    client = memory_broker.client
    (await client.put(TOPIC)).raise_for_status()
    await publish(memory_broker, "a")
    async with socket_client(memory_broker.url, "t") as socket:
        await socket.ok(subscribe={**QUEUE, "credit": 1})
        ((message,),) = [each["messages"] for each in await deliveries(socket, 1)]
        body = acks(message["claim"], case)
        over_http = (await client.post(f"{TOPIC}/groups/g/acks", content=body)).json()
        await socket.connection.send(b'{"id":"it","group":"g","ack":%b}' % body, text=True)
        await socket.until(lambda: "it" in socket.answers or bool(socket.told))
        told = socket.told[0] if socket.told else socket.answers["it"]["problem"]
        assert told["status"] == over_http["status"] in (400, 422)
        assert "twice" in over_http["detail"] or "names too" in over_http["detail"]
        assert "twice" in told["detail"] or told["detail"] == over_http["detail"]
    assert (await group(memory_broker))["lag"]["messages"] == 1


async def test_what_a_gone_socket_would_have_got_is_for_others(broker: HttpBroker) -> None:
    async with socket_client(broker.url, "t") as gone:
        await gone.ok(subscribe={**QUEUE, "credit": 5})
    async with socket_client(broker.url, "t") as socket:
        await socket.ok(subscribe={**QUEUE, "credit": 5})
        await publish(broker, *"ab")
        assert sum(len(each["messages"]) for each in await deliveries(socket, 2)) == 2


async def test_a_group_that_is_deleted_ends_its_subscriptions(broker: HttpBroker, socket: SocketClient) -> None:
    await socket.ok(subscribe={**QUEUE, "credit": 5})
    await publish(broker, "a")
    await deliveries(socket, 1)
    (await broker.client.delete(f"{TOPIC}/groups/g")).raise_for_status()
    end = await socket.delivery("end")
    assert end["end"] == "refused"
    checked(end["problem"], "group-not-found", "deleted")


CLAIM = {"messages": [{"claim": "forged"}]}


@pytest.mark.parametrize(
    ("fields", "slug", "part"),
    [
        ({"ack": CLAIM}, "invalid-request", "names its group"),
        ({"ack": CLAIM, "group": "absent"}, "group-not-found", "absent"),
        ({"ack": CLAIM, "group": "g/h"}, "invalid-name", "group"),
        ({"ack": CLAIM, "group": 5}, "invalid-request", "group must be a string"),
        ({"ack": [], "group": "q"}, "invalid-request", "is an object"),
        ({"ack": {}, "group": "q"}, "invalid-request", "messages"),
        ({"ack": CLAIM, "group": "q"}, "invalid-request", "messages.0"),
        ({"release": {**CLAIM, "delay_seconds": -1}, "group": "q"}, "invalid-request", "delay_seconds"),
        ({"extend": {**CLAIM, "lease_seconds": 86_400 * 365}, "group": "q"}, "invalid-config", "at most 30 s"),
        ({"commit": {"positions": []}}, "invalid-request", "0 subscriptions"),
        ({"let_go": []}, "invalid-request", "0 subscriptions"),
        ({"subscribe": {"group": "q", "mode": "stream"}}, "group-mode", "queue group"),
        ({"subscribe": {**QUEUE, "lease_seconds": 0}}, "invalid-request", "lease_seconds"),
        ({"subscribe": {**STREAM, "member_id": "a/b"}}, "invalid-name", "member"),
    ],
)
async def test_what_is_wrong_is_the_answer(
    broker: HttpBroker, socket: SocketClient, fields: dict[str, Any], slug: str, part: str
) -> None:
    (await broker.client.put(f"{TOPIC}/groups/q", json={})).raise_for_status()
    await socket.problem(slug, part, **fields)


# -- stream groups ---------------------------------------------------------------------------------------------------


async def test_a_member_gets_its_segments_and_commits(broker: HttpBroker, socket: SocketClient) -> None:
    begun = await socket.ok(subscribe={**STREAM, "member_id": "a", "credit": 100})
    assert begun["member_id"] == "a"
    assert sorted(each["segment"] for each in begun["segments"]) == [0, 1]
    await publish(broker, *[f"{number}" for number in range(20)])
    for got in await deliveries(socket, 20):
        position = {name: got[name] for name in ("segment", "epoch", "position")}
        committed = {**position, "in_force": position["position"]}
        assert await socket.ok(commit={"positions": [position]}) == {"committed": [committed], "fenced": []}
    assert (await group(broker))["lag"]["messages"] == 0
    await socket.problem("member-fenced", commit={"positions": [{**position, "epoch": 99}]})


async def test_without_a_name_the_member_has_that_of_the_consumer(socket: SocketClient) -> None:
    begun = await socket.ok(subscribe=STREAM)
    assert begun["member_id"] == socket.hello["consumer"]


async def test_segments_go_to_another_member_when_they_are_let_go(broker: HttpBroker, socket: SocketClient) -> None:
    await socket.ok(subscribe={**STREAM, "member_id": "a", "credit": 100})
    async with socket_client(broker.url, "t") as second:
        assert (await second.ok(subscribe={**STREAM, "member_id": "b", "credit": 100}))["segments"] == []
        told = await socket.delivery("release")
        (releasing,) = told["release"]
        await socket.ok(let_go=told["release"])
        while not (assigned := (await second.delivery("segments"))["segments"]):
            pass
        assert [each["segment"] for each in assigned] == [releasing["segment"]]
        await publish(broker, *[f"{number}" for number in range(40)])
        got, other = await asyncio.gather(collected(socket), collected(second))
        assert {each["segment"] for each in got} != {each["segment"] for each in other}
    # Its socket is closed: it has left, and the first has all again.
    await socket.until(lambda: any(len(each.get("segments", ())) == 2 for each in socket.delivered))


async def collected(socket: SocketClient) -> list[dict[str, Any]]:
    """What comes until there is a message."""
    return await deliveries(socket, 1)


async def test_segments_that_the_member_does_not_have_are_not_let_go(socket: SocketClient) -> None:
    await socket.ok(subscribe=STREAM)
    await socket.problem("invalid-request", "no segment", let_go=[{"segment": 9, "epoch": 1}])
    await socket.problem("invalid-request", "list of segments", let_go={"segment": 0})
    await socket.problem("invalid-request", "let_go.0.epoch: it is missing", let_go=[{"segment": 0}])
    await socket.problem("invalid-request", "did you mean 'let_go.0.epoch'", let_go=[{"segment": 0, "epohc": 1}])


async def test_a_member_that_has_joined_elsewhere_is_fenced(broker: HttpBroker, socket: SocketClient) -> None:
    await socket.ok(subscribe={**STREAM, "member_id": "a", "credit": 100})
    async with socket_client(broker.url, "t") as second:
        await second.ok(subscribe={**STREAM, "member_id": "a", "credit": 100})
        end = await socket.delivery("end")
        checked(end["problem"], "member-fenced")


async def test_through_a_split_a_member_gets_the_successors(broker: HttpBroker, socket: SocketClient) -> None:
    await socket.ok(subscribe={**STREAM, "member_id": "a", "credit": 1000})
    await publish(broker, *[f"{number}" for number in range(20)])
    (await broker.client.post(f"{TOPIC}/segments/0/split")).raise_for_status()
    await publish(broker, *[f"{number}" for number in range(20, 40)])
    seen: set[str] = set()
    while len(seen) < 40:
        got = await socket.delivery()
        seen |= {each["value"] for each in got["messages"]}
        await socket.ok(commit={"positions": [{name: got[name] for name in ("segment", "epoch", "position")}]})
    assert (await group(broker))["lag"]["messages"] == 0


async def test_a_join_that_is_under_way_when_its_socket_goes_is_followed_by_a_leave(broker: HttpBroker) -> None:
    (await broker.client.put(f"{TOPIC}/groups/g", json={"mode": "stream"})).raise_for_status()
    for _ in range(5):
        async with socket_client(broker.url, "t") as gone:
            await gone.send(subscribe=STREAM)
    async with asyncio.timeout(20):
        while (await group(broker))["members"]:
            await asyncio.sleep(0.01)
