"""Several brokers of one cluster in this process, over real HTTP: any of them takes anything."""

import asyncio
import contextlib
import hashlib
import hmac
from dataclasses import replace
from typing import NoReturn

import orjson
import pytest

from braidmq import AsyncClient
from filer.clock import SystemClock, settle
from filer.errors import CorruptFile, InvalidConfig
from filer.slots import slot_of
from filer.stores.memory_store import MemoryStore
from filer.topic.catalogue import Catalogue, TopicRecord
from filer.topic.topic_config import TopicConfig
from mq.base.errors import NoOtherBroker
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.cli.diagnosis.checks import broker_findings
from mq.peers.calls import PREFIX, SECRET_HEADER
from mq.topic.topic_publisher import RETRIES
from tests.support.broker.problems import check_problem
from tests.support.cluster.http_cluster import PATIENCE_SECONDS, HttpCluster, until
from tests.support.cluster.shared_coordinator import SharedCoordinator
from tests.support.net.tcp_proxy import TcpProxy

MESSAGES = [(f"key-{n}", f"{n}") for n in range(100)]


async def test_any_broker_takes_and_gives_everything(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=6)
    assert await brokers.owners("c", "t") == {"a": 2, "b": 2, "c": 2}
    for name, some in (("a", MESSAGES[:40]), ("b", MESSAGES[40:80]), ("c", MESSAGES[80:])):
        positions = await brokers.publish(name, "t", *some)
        assert sum(position["count"] for position in positions) == len(some)
        for reader in "abc":
            assert len(await brokers.values(reader, "t")) == int(some[-1][1]) + 1
    for reader in "abc":
        assert sorted(map(int, await brokers.values(reader, "t"))) == list(range(100))


async def test_what_is_heard_of_a_topic_while_it_is_read_is_read_too(
    brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read may be older than the news."""
    await brokers.create("b", "t", min_segments=1)
    broker = brokers.up["b"].broker
    read = broker.catalogue.read

    async def overtaken(topic: str) -> TopicRecord | None:
        found = await read(topic)
        monkeypatch.setattr(broker.catalogue, "read", read)
        config = TopicConfig(max_segments=7)
        await Catalogue(brokers.store, brokers.clock).change(topic, lambda s: s.model_copy(update={"config": config}))
        broker.coordinator.announce(topic)
        await settle()
        return found

    monkeypatch.setattr(broker.catalogue, "read", overtaken)
    broker.coordinator.announce("t")
    # Upkeep would read it ten seconds later.
    async with asyncio.timeout(5):
        while broker.topics["t"].state.config.max_segments != 7:
            await asyncio.sleep(0.01)


async def test_singles_go_to_their_owner(brokers: HttpCluster) -> None:
    await brokers.create("b", "t", segments=3)
    route = (await brokers.get("a", "/v1/topics/t/route"))["segments"]
    answers = await asyncio.gather(
        *(
            brokers.up["abc"[n % 3]].client.post("/v1/topics/t/messages", params={"key": f"k{n}"}, content=b"%d" % n)
            for n in range(60)
        )
    )
    for n, answer in enumerate(answers):
        [position] = answer.raise_for_status().json()["positions"]
        [segment] = [s for s in route if s["segment"] == position["segment"]]
        assert segment["range"][0] <= slot_of(b"k%d" % n) < segment["range"][1]
        message = await brokers.get("c", f"/v1/topics/t/messages/{position['segment']}-{position['offset']}")
        assert (message["key"], message["value"]) == (f"k{n}", f"{n}")
    assert sorted(map(int, await brokers.values("c", "t"))) == list(range(60))


async def test_a_line_to_an_owner_that_breaks_during_a_publish(brokers: HttpCluster) -> None:
    """The store has nothing to do with it; and without an id nobody may send the message again."""
    members = brokers.membership.members
    with contextlib.ExitStack() as stack:
        lines = {name: stack.enter_context(TcpProxy("127.0.0.1", each.port)) for name, each in brokers.up.items()}
        for name, each in brokers.up.items():
            info = members[each.broker.id]
            members[info.id] = replace(info, url=f"http://{lines[name].address}")
        await brokers.create("a", "t")
        [[owner]] = await brokers.brokers_of("a", "t")
        [other, _] = sorted(set("abc") - {owner})
        owning, client = brokers.up[owner], brokers.up[other].client
        brokers.stores[owner].hold()
        publishing = asyncio.create_task(client.post("/v1/topics/t/messages", content=b"x"))

        async def arrived() -> bool:
            return owning.broker.front_store.pending_bytes > 0

        await until(arrived)
        lines[owner].cut()
        problem = check_problem(await publishing, 503, "owner-silent", "segment 0 of topic 't'", "is not known")
        assert not problem["retryable"]
        silent = await client.post(f"/v1/cluster/brokers/{owner}/drain")
        assert check_problem(silent, 503, "broker-unreachable", owning.broker.id)["retryable"]
        lines[owner].heal()
        brokers.stores[owner].release()


async def test_an_object_that_an_owner_cannot_read_is_named_by_any_broker(
    brokers: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await brokers.create("a", "t")
    [[owner]] = await brokers.brokers_of("a", "t")
    [other, _] = sorted(set("abc") - {owner})
    error = CorruptFile("x is damaged", key="topics/t/x", segment=0, offset=0, next_offset=4)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise error

    owning = brokers.up[owner].broker
    monkeypatch.setattr(owning, "reader", refuse)
    monkeypatch.setattr(owning.topics["t"].writers[0], "append", refuse)
    for answer in (
        await brokers.up[other].client.get("/v1/topics/t/segments/0/messages"),
        await brokers.up[other].client.post("/v1/topics/t/messages", content=b"y"),
    ):
        problem = check_problem(answer, 503, "data-damaged", "x is damaged")
        assert (problem["key"], problem["offset"], problem["next_offset"]) == ("topics/t/x", 0, 4)


async def test_a_killed_broker_is_failed_over(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=6)
    await brokers.publish("a", "t", *MESSAGES)
    lost = brokers.up["c"].broker
    brokers.membership.expel(lost.id)

    async def failed_over() -> bool:
        return "c" not in await brokers.owners("a", "t")

    await until(failed_over)
    await brokers.publish("b", "t", *((f"key-{n}", f"{n}") for n in range(100, 200)))
    assert sorted(map(int, await brokers.values("a", "t"))) == list(range(200))
    # The zombie has lost its segments: what it is given goes to the new owners.
    await brokers.publish("c", "t", *((f"key-{n}", f"{n}") for n in range(200, 300)))
    assert sorted(map(int, await brokers.values("b", "t"))) == list(range(300))


async def test_a_topic_that_is_created_again_elsewhere_is_there_at_once(brokers: HttpCluster) -> None:
    await brokers.create("a", "t")
    for name in "abc":
        await brokers.publish(name, "t", ("key", f"before, {name}"))
    (await brokers.up["a"].client.delete("/v1/topics/t")).raise_for_status()

    async def gone() -> bool:
        answers = [await each.client.get("/v1/topics/t") for each in brokers.up.values()]
        return all(answer.status_code == 404 for answer in answers)

    await until(gone)
    await brokers.create("a", "t")
    for name in "bc":
        await brokers.publish(name, "t", ("key", f"after, {name}"))
        assert (await brokers.values(name, "t"))[-1] == f"after, {name}"
    assert await brokers.values("a", "t") == ["after, b", "after, c"]


async def test_a_broker_whose_segment_others_took_says_so(
    brokers: HttpCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await brokers.create("a", "t")
    [owner] = await brokers.owners("a", "t")
    other = next(name for name in "abc" if name != owner)
    brokers.cut_off(owner)

    async def failed_over() -> bool:
        return owner not in await brokers.owners(other, "t")

    await until(failed_over)
    assert "segment_lost" not in caplog.text
    await brokers.publish(owner, "t", ("key", "0"))
    line = 'segment_lost topic=t segment=0 error="SegmentMoved: '
    assert [record.levelname for record in caplog.records if line in record.getMessage()] == ["WARNING"]
    assert await brokers.values(other, "t") == ["0"]


async def test_news_of_a_topic_do_not_end_the_search_for_an_owner(brokers: HttpCluster) -> None:
    """Each of them cuts a wait short, and there are more of them than a request is sent anew."""
    await brokers.create("a", "t")
    [owner] = await brokers.owners("a", "t")
    other = brokers.up[next(name for name in "abc" if name != owner)]
    brokers.membership.leaders = set()
    brokers.cut_off(owner)
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        publishing = group.create_task(other.client.post("/v1/topics/t/messages", content=b"1"))
        for number in range(RETRIES + 5):
            body = {"retention": {"seconds": 1000 + number}}
            (await other.client.put("/v1/topics/t", json=body)).raise_for_status()
            await asyncio.sleep(0)
        assert not publishing.done()
        brokers.membership.leaders = None
        brokers.membership.notify()
    assert publishing.result().status_code == 200
    assert publishing.result().json()["positions"] == [{"segment": 1, "offset": 0, "count": 1}]


async def test_nobody_waits_for_an_owner_that_lost_its_segment_and_does_not_answer(brokers: HttpCluster) -> None:
    await brokers.create("a", "t")
    [owner] = await brokers.owners("a", "t")
    other = next(name for name in "abc" if name != owner)
    brokers.stores[owner].hold()
    publish = brokers.up[other].client.post
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        without_id = group.create_task(publish("/v1/topics/t/messages?key=k", content=b"0"))
        with_id = group.create_task(publish("/v1/topics/t/messages?key=k&producer=p&sequence=1", content=b"1"))

        async def accepted() -> bool:
            runtime = brokers.up[owner].broker.topics["t"]
            return sum(writer.accepted_end for writer in runtime.writers.values()) == 2

        await until(accepted)
        brokers.expel(owner)
    assert (without_id.result().status_code, without_id.result().json()["retryable"]) == (503, False)
    # Its repetition went to the new owner, which has it once, whatever the old one still tries.
    assert with_id.result().status_code == 200
    brokers.stores[owner].release()
    again = await publish("/v1/topics/t/messages?key=k&producer=p&sequence=1", content=b"1")
    assert again.json() == with_id.result().json()
    assert (await brokers.values(other, "t")).count("1") == 1


async def test_a_broker_that_stops_hands_over_first(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=6)
    await brokers.publish("a", "t", *MESSAGES)
    publishing = asyncio.create_task(_publish_for_long(brokers))
    await brokers.stop("b")
    assert await brokers.owners("a", "t") == {"a": 3, "c": 3}
    sent = await publishing
    assert sorted(map(int, await brokers.values("c", "t"))) == list(range(sent))


async def _publish_for_long(brokers: HttpCluster) -> int:
    number = 100
    while "b" in brokers.up or number < 200:
        await brokers.publish("c", "t", (f"key-{number}", f"{number}"))
        number += 1
    return number


async def test_a_broker_with_another_store_keeps_itself_out_and_nobody_else(brokers: HttpCluster) -> None:
    """Also while it is there still, or starts at the same time: who came first has the cluster's store."""
    settings = BrokerSettings(broker="wrong")
    wrong = Broker(MemoryStore(), SystemClock(), SharedCoordinator(brokers.membership), settings)
    with pytest.raises(InvalidConfig, match=r"^a\.\S+ of cluster 'braidmq' at this ZooKeeper has another store"):
        await wrong.start("http://127.0.0.1:9")
    assert "wrong" in {each.partition(".")[0] for each in brokers.membership.members}
    await brokers.start("d")
    await wrong.close()
    assert [each["broker"].partition(".")[0] for each in (await brokers.get("d", "/v1/cluster"))["brokers"]] == [
        *"abcd"
    ]


async def test_a_broker_on_a_copy_of_the_store_is_refused_before_it_is_announced(brokers: HttpCluster) -> None:
    """All that the store had, the copy has: cluster, id and secret. What is written now it has not."""
    copy = MemoryStore()
    async for info in brokers.store.list(""):
        await copy.create(info.key, (await brokers.store.get(info.key)).data)
    seen: list[str] = []
    coordinator = SharedCoordinator(brokers.membership)
    coordinator.on_change(lambda: seen.extend(each.id for each in coordinator.brokers()))
    drill = Broker(copy, SystemClock(), coordinator, BrokerSettings(broker="drill"))
    with pytest.raises(InvalidConfig, match=r"^a\.\S+ at \S+ does not find .* that is a copy of the cluster's store"):
        await drill.start("http://127.0.0.1:9")
    await drill.close()
    assert seen == [] and len(brokers.membership.members) == 3


async def test_a_start_leaves_no_proof_of_its_store(brokers: HttpCluster) -> None:
    left = [info.key async for info in brokers.store.list("cluster/")]
    assert left == ["cluster/cluster.json", "cluster/settings-copy.json", "cluster/settings.json"]


async def test_a_broker_that_has_lost_zookeeper_says_so_and_knows_no_leader(brokers: HttpCluster) -> None:
    """The last one that it knew may have died since. It goes on to acknowledge."""
    await brokers.create("c", "t")
    brokers.expel("c")
    told = await brokers.get("c", "/v1/cluster")
    assert told["leader"] is None and [each["type"] for each in told["problems"]] == ["zookeeper-lost"]
    ready = await brokers.get("c", "/readyz")
    assert ready == {"ready": True, "status": "degraded", "problems": told["problems"]}
    async with AsyncClient(brokers.up["c"].url) as client:
        findings = {each.check: each for each in await broker_findings(client, SystemClock())}
    assert (findings["readiness"].result, findings["readiness"].detail[:26]) == (
        "warning",
        "degraded: zookeeper-lost: ",
    )
    with pytest.raises(NoOtherBroker, match="has lost ZooKeeper"):
        await brokers.up["c"].broker.drainer.hand_over_to_others()
    healthy = await brokers.get("a", "/v1/cluster")
    assert (healthy["leader"], healthy["problems"]) == (brokers.up["a"].broker.id, [])


async def test_new_brokers_get_their_share(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=9)
    await brokers.publish("a", "t", *MESSAGES)
    await brokers.start("d")

    async def spread() -> bool:
        return sorted((await brokers.owners("b", "t")).values()) == [2, 2, 2, 3]

    await until(spread)
    assert sorted(map(int, await brokers.values("d", "t"))) == list(range(100))


async def test_a_drained_broker_runs_on_and_owns_nothing(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=6)

    async def drained() -> bool:
        answer = await brokers.up["c"].client.post("/v1/cluster/brokers/b/drain")
        assert answer.status_code == 202
        return bool(answer.json()["segments"] == 0)

    await until(drained)
    status = {b["broker"].partition(".")[0]: b for b in (await brokers.get("b", "/v1/cluster"))["brokers"]}
    assert {name: (b["state"], b["segments"]) for name, b in status.items()} == {
        "a": ("running", 3),
        "b": ("draining", 0),
        "c": ("running", 3),
    }
    await brokers.publish("b", "t", *MESSAGES)
    assert sorted(map(int, await brokers.values("b", "t"))) == list(range(100))
    missing = await brokers.up["a"].client.post("/v1/cluster/brokers/nobody/drain")
    assert missing.status_code == 404
    assert "there is no live broker 'nobody'" in missing.json()["detail"]


async def test_a_name_that_two_brokers_have_is_not_drained(brokers: HttpCluster) -> None:
    members = brokers.membership.members
    twin = replace(next(each for each in members.values() if each.id.startswith("b.")), id="b.01TWIN")
    members[twin.id] = twin
    answer = await brokers.up["a"].client.post("/v1/cluster/brokers/b/drain")
    assert answer.status_code == 422
    assert "several brokers are called 'b': name one by its id" in answer.json()["detail"]
    assert twin.id in answer.json()["detail"]
    assert (await brokers.up["a"].client.post(f"/v1/cluster/brokers/{twin.id}/drain")).status_code == 202


async def test_a_broker_that_does_not_answer_cannot_be_drained_from_elsewhere(brokers: HttpCluster) -> None:
    members = brokers.membership.members
    dead = replace(next(iter(members.values())), id="dead.01DEAD", url="http://127.0.0.1:9")
    members[dead.id] = dead
    answer = await brokers.up["a"].client.post("/v1/cluster/brokers/dead/drain")
    problem = answer.json()
    assert (answer.status_code, problem["type"], problem["retryable"]) == (503, "urn:braidmq:broker-unreachable", True)
    assert "broker dead.01DEAD does not answer: http://127.0.0.1:9" in problem["detail"]


async def test_two_leaders_at_once_break_nothing(brokers: HttpCluster) -> None:
    for n in range(4):
        await brokers.create("a", f"t{n}", segments=6)
    brokers.membership.leaders = {b.broker.id for b in brokers.up.values()}
    lost = brokers.up["c"].broker
    brokers.membership.expel(lost.id)

    async def failed_over() -> bool:
        return not any(["c" in await brokers.owners("a", f"t{n}") for n in range(4)])

    await until(failed_over)
    for n in range(4):
        await brokers.publish("b", f"t{n}", *MESSAGES)
        assert sorted(map(int, await brokers.values("a", f"t{n}"))) == list(range(100))


async def test_the_cluster_is_shown_while_the_store_is_away(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=6)
    brokers.stores["a"].lists_topics = False
    status = await brokers.get("a", "/v1/cluster")
    assert [broker["segments"] for broker in status["brokers"]] == [2, 2, 2]


async def test_metrics_tell_how_the_cluster_stands(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=6)
    brokers.membership.leaders = {brokers.up["b"].broker.id}
    brokers.membership.members.pop(brokers.up["c"].broker.id)
    seen = {}
    for name, broker in brokers.up.items():
        lines = (await broker.client.get("/metrics")).text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        kinds = ("leads", "in_touch", "brokers", "segments_owned")
        seen[name] = [float(values[f"braidmq_{kind}"]) for kind in kinds]
    assert seen == {"a": [0, 1, 2, 2], "b": [1, 1, 2, 2], "c": [0, 0, 2, 2]}


async def test_the_secret_is_asked_for(brokers: HttpCluster) -> None:
    await brokers.create("a", "t")
    client = brokers.up["a"].client
    for headers in ({}, {"braid-cluster-secret": "guess"}):
        answer = await client.post("/internal/v1/topics/t/segments/0/seal?version=1", headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:braidmq:forbidden")
    assert (await brokers.publish("b", "t", ("k", "v")))[0]["offset"] == 0


@pytest.mark.parametrize(
    ("call", "status", "detail"),
    [
        ("POST /topics/t/segments/0/seal", 422, "the parameter version is missing"),
        ("POST /topics/t/segments/0/seal?version=x", 422, "the query is not valid"),
        ("GET /topics/t/segments/0/tail?offset=0", 422, "the parameter max_rows is missing"),
        ("POST /topics/t/segments/9/takeover?version=1", 409, "segment 9 of topic 't' is not open any more"),
        ("POST /topics/nothing/segments/0/seal?version=1", 404, "there is no topic 'nothing'"),
        ("POST /topics/t/segments/0/append?version=1", 400, "these are not the parts of requests"),
        ("GET /topics/t/segments/0/seal?version=1", 404, "there is no GET /internal/v1/topics/t/segments/0/seal"),
        ("POST /topics/t/refresh?version=1", 422, "that is no topic's record"),
        ("POST /nothing", 404, "there is no POST /internal/v1/nothing"),
    ],
)
async def test_what_makes_no_sense_from_another_broker(
    call: str, status: int, detail: str, brokers: HttpCluster
) -> None:
    await brokers.create("a", "t")
    [owner] = await brokers.owners("a", "t")
    secret = hmac.new(_secret(brokers.up[owner].broker), b"braidmq peers", hashlib.sha256).hexdigest()
    method, path = call.split()
    answer = await brokers.up[owner].client.request(
        method, PREFIX + path, headers={SECRET_HEADER: secret}, content=b"junk"
    )
    assert answer.status_code == status
    assert detail in answer.json()["detail"]


async def test_another_topic_s_record_is_refused(brokers: HttpCluster) -> None:
    for name in ("t", "other"):
        await brokers.create("a", name)
    each = brokers.up["a"]
    secret = hmac.new(_secret(each.broker), b"braidmq peers", hashlib.sha256).hexdigest()
    answer = await each.client.post(
        f"{PREFIX}/topics/t/refresh?version=1",
        headers={SECRET_HEADER: secret},
        content=each.broker.topics["other"].state.to_json(),
    )
    check_problem(answer, 422, "invalid-request", "the record is that of topic 'other', not of 't'")


def _secret(broker: Broker) -> bytes:
    assert broker.cluster is not None
    return broker.cluster.secret


async def test_a_subscriber_anywhere_hears_of_it_at_once(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", segments=3)
    heard: dict[str, list[str]] = {name: [] for name in "abc"}

    async def listen(name: str) -> None:
        async with brokers.up[name].client.stream(
            "GET", "/v1/topics/t/subscribe", params={"from": "earliest"}, headers={"accept": "application/x-ndjson"}
        ) as stream:
            async for line in stream.aiter_lines():
                document = orjson.loads(line)
                if "message" in document:
                    heard[name].append(document["message"]["value"])
                if len(heard[name]) == len(MESSAGES):
                    return

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        for name in heard:
            group.create_task(listen(name))
        for message in MESSAGES:
            await brokers.publish("b", "t", message)
    for values in heard.values():
        assert sorted(map(int, values)) == list(range(100))


@pytest.mark.parametrize("back", [True, False])
async def test_nobody_who_missed_a_failover_says_that_there_is_nothing_more(brokers: HttpCluster, back: bool) -> None:
    """The former owner, and one who asks it, have not heard yet that messages go to a successor."""
    await brokers.create("a", "t")
    [owner] = await brokers.owners("a", "t")
    leader, other = sorted(set("abc") - {owner})
    await brokers.publish(owner, "t", ("key", "0"))
    assert await brokers.values(other, "t") == ["0"]
    cut_off = [brokers.cut_off(name) for name in (owner, other)]

    async def failed_over() -> bool:
        return await brokers.owners(leader, "t") == {leader: 1}

    await until(failed_over)
    await brokers.publish(leader, "t", ("key", "1"))
    if back:
        for member in cut_off:
            brokers.join_again(member)
    assert await brokers.values(other, "t") == ["0", "1"]
    assert await brokers.values(owner, "t") == ["0", "1"]
