"""Whether a broker that starts has the store of those that run: an object that it has just written tells."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import orjson
import pytest

from filer import keys
from filer.clock import Clock
from filer.errors import InvalidConfig, ObjectNotFound
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import BrokerInfo
from mq.base.errors import NotFound, PeerRefused, PeerUnreachable
from mq.http.problems import problem_of
from mq.peers.peers import Peers
from mq.peers.same_store import SHORTEST_PATIENCE_SECONDS, SameStore
from mq.peers.transport import PeerAnswer
from tests.support.instant_clock import InstantClock

ELDEST, SECOND = BrokerInfo("a.01", "http://a", "", "1"), BrokerInfo("b.01", "http://b", "", "1")
Behaviour = Callable[[str], Awaitable[PeerAnswer]]


def reads(store: MemoryStore, broker: str) -> Behaviour:
    """A broker that runs on that store."""

    async def answer(ulid: str) -> PeerAnswer:
        try:
            content = (await store.get(keys.store_proof(ulid))).data.decode()
        except ObjectNotFound:
            content = None
        return PeerAnswer(200, {}, orjson.dumps({"broker": broker, "content": content}))

    return answer


async def older(ulid: str) -> PeerAnswer:
    """A broker of the version before."""
    problem = problem_of(NotFound("path", "there is no such path"))
    return PeerAnswer(problem.status, {}, problem.body())


async def silent(ulid: str) -> PeerAnswer:
    raise PeerUnreachable("no route")


async def refusing(ulid: str) -> PeerAnswer:
    raise PeerRefused("nobody listens")


class Network:
    """Brokers by URL."""

    def __init__(self, **brokers: Behaviour) -> None:
        self.brokers = {f"http://{name}": behaviour for name, behaviour in brokers.items()}
        self.ulids: set[str] = set()
        self.asked = 0

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        self.asked += 1
        self.ulids.add(bytes(body).decode())
        return await self.brokers[url.partition("/internal")[0]](bytes(body).decode())

    async def close(self) -> None:
        """Nothing to close."""


class Newcomer:
    """A broker that starts on `store`, in a cluster of these brokers."""

    def __init__(self, store: MemoryStore, elders: Sequence[BrokerInfo], **brokers: Behaviour) -> None:
        self.store, self.elders, self.network = store, list(elders), Network(**brokers)
        self.clock: Clock = InstantClock()
        self.proof = SameStore(store, self.clock, Peers(self.network), session_timeout_seconds=10)

    async def prove(self) -> None:
        await self.proof.prove(self.look)

    async def look(self) -> Sequence[BrokerInfo]:
        return tuple(self.elders)

    async def left(self) -> list[str]:
        return [info.key async for info in self.store.list("")]


async def test_what_it_has_written_is_read_back_by_a_broker_that_runs_and_deleted() -> None:
    store = MemoryStore()
    newcomer = Newcomer(store, [ELDEST], a=reads(store, "a.01"))
    await newcomer.prove()
    assert (newcomer.network.asked, await newcomer.left()) == (1, [])


async def test_each_proof_writes_anew() -> None:
    """A copy that was made since the last one does not pass."""
    store = MemoryStore()
    newcomer = Newcomer(store, [ELDEST], a=reads(store, "a.01"))
    await newcomer.prove()
    await newcomer.prove()
    assert len(newcomer.network.ulids) == 2


async def test_a_copy_is_refused_and_left_as_it_was() -> None:
    newcomer = Newcomer(MemoryStore(), [ELDEST], a=reads(MemoryStore(), "a.01"))
    with pytest.raises(
        InvalidConfig, match=r"^a\.01 at http://a does not find .* that is a copy of the cluster's store"
    ):
        await newcomer.prove()
    assert await newcomer.left() == []


async def test_alone_it_writes_nothing() -> None:
    newcomer = Newcomer(MemoryStore(), [])
    await newcomer.prove()
    assert newcomer.network.asked == 0


@pytest.mark.parametrize("is_copy", [False, True])
async def test_the_eldest_that_answers_decides(is_copy: bool) -> None:
    """Who has a wrong store keeps only itself out."""
    store, other = MemoryStore(), MemoryStore()
    eldest, second = (other, store) if is_copy else (store, other)
    newcomer = Newcomer(store, [ELDEST, SECOND], a=reads(eldest, "a.01"), b=reads(second, "b.01"))
    if is_copy:
        with pytest.raises(InvalidConfig, match=r"^a\.01"):
            await newcomer.prove()
    else:
        await newcomer.prove()


@pytest.mark.parametrize("mute", [silent, refusing], ids=["silent", "refusing"])
async def test_one_that_does_not_answer_leaves_it_to_the_others(mute: Behaviour) -> None:
    store = MemoryStore()
    await Newcomer(store, [ELDEST, SECOND], a=mute, b=reads(store, "b.01")).prove()
    with pytest.raises(InvalidConfig, match=r"^b\.01"):
        await Newcomer(store, [ELDEST, SECOND], a=mute, b=reads(MemoryStore(), "b.01")).prove()


async def test_brokers_of_a_version_before_are_believed_unless_a_newer_one_says_otherwise() -> None:
    store = MemoryStore()
    await Newcomer(store, [ELDEST, SECOND], a=older, b=silent).prove()
    with pytest.raises(InvalidConfig, match=r"^b\.01"):
        await Newcomer(store, [ELDEST, SECOND], a=older, b=reads(MemoryStore(), "b.01")).prove()


async def test_a_broker_that_has_died_is_waited_for_until_its_session_ends() -> None:
    newcomer = Newcomer(MemoryStore(), [ELDEST], a=refusing)

    async def look() -> Sequence[BrokerInfo]:
        return newcomer.elders if newcomer.network.asked < 9 else []

    await newcomer.proof.prove(look)
    assert newcomer.network.asked == 9


async def test_another_process_at_the_address_of_a_dead_broker_proves_nothing() -> None:
    store = MemoryStore()
    newcomer = Newcomer(store, [ELDEST], a=reads(store, "a.02"))
    with pytest.raises(InvalidConfig, match=r"a\.02 answers there"):
        await newcomer.prove()


async def test_a_broker_that_stays_announced_and_silent_is_a_clear_refusal_in_the_end() -> None:
    newcomer = Newcomer(MemoryStore(), [ELDEST], a=silent)
    began = newcomer.clock.monotonic_seconds()
    with pytest.raises(InvalidConfig, match=r"^a\.01, which is announced at http://a, does not answer.*: no route$"):
        await newcomer.prove()
    waited_seconds = newcomer.clock.monotonic_seconds() - began
    assert SHORTEST_PATIENCE_SECONDS <= waited_seconds < SHORTEST_PATIENCE_SECONDS + 4
    assert await newcomer.left() == []


async def test_one_that_came_before_and_has_proven_nothing_yet_is_waited_for() -> None:
    """With the others gone, it would be the first."""
    store = MemoryStore()
    newcomer = Newcomer(store, [ELDEST, replace(SECOND, starting=True)], a=reads(store, "a.01"), b=refusing)

    async def look() -> Sequence[BrokerInfo]:
        return newcomer.elders if newcomer.network.asked < 8 else [ELDEST, SECOND]

    await newcomer.proof.prove(look)
    assert newcomer.network.asked == 10
    with pytest.raises(InvalidConfig, match=r"^b\.01, .*: it has not started yet$"):
        await newcomer.prove()
