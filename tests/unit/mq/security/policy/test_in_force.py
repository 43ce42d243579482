"""The policy of a store at one broker: swaps whose answer is lost or never comes, damage, and who comes too late."""

import asyncio
from dataclasses import replace

import pytest

from filer import keys
from filer.errors import CorruptFile, OutcomeUnknown
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.topic.record_check import with_check
from mq.base.errors import Conflict, PolicyChanged
from mq.security.policy.document import Policy, parse_policy
from mq.security.policy.in_force import PolicyInForce
from mq.security.policy.policy_object import PolicyObject, tag_of
from tests.support.instant_clock import InstantClock


class Killed(BaseException):
    """The process stops."""


class At:
    """A broker's policy, and what it has heard of it."""

    def __init__(self, store: Store) -> None:
        self.heard: list[int] = []
        self.failures = 0
        self.policy = PolicyInForce(store, InstantClock(), lambda each: self.heard.append(each.version), self._failed)

    def _failed(self) -> None:
        self.failures += 1


def revoking(*ids: str) -> Policy:
    return parse_policy({"revoked_tokens": [{"id": each, "until": "2126-01-01T00:00:00Z"} for each in ids]})


def revoked(policy: Policy) -> list[str]:
    return [id_ for id_, _ in policy.tokens]


async def test_who_writes_has_it_in_force_and_others_after_a_look() -> None:
    store = MemoryStore()
    here, there = At(store), At(store)
    await here.policy.open()
    await there.policy.open()
    made = await here.policy.replace(revoking("a"), tag_of(Policy()))
    assert made == here.policy.policy and here.heard == [1] and there.heard == []
    await there.policy.refresh()
    await there.policy.refresh()
    assert revoked(there.policy.policy) == ["a"] and there.heard == [1]
    # A version that another has overtaken is refused, whoever writes.
    await there.policy.replace(revoking("a", "b"), tag_of(made))
    with pytest.raises(PolicyChanged, match="version 2 by now"):
        await here.policy.replace(revoking("c"), tag_of(made))
    assert revoked(here.policy.policy) == ["a", "b"], "it has read that one by now"


async def test_two_who_write_at_once_are_told_apart() -> None:
    store = MemoryStore()
    brokers = [At(store) for _ in range(8)]
    tried = [each.policy.replace(revoking(str(n)), tag_of(Policy())) for n, each in enumerate(brokers)]
    outcomes = await asyncio.gather(*tried, return_exceptions=True)
    assert sum(isinstance(each, Policy) for each in outcomes) == 1
    assert sum(isinstance(each, PolicyChanged) for each in outcomes) == 7


@pytest.mark.parametrize("operation", ["create", "replace"])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_process_that_stops_at_the_swap_has_changed_it_or_not(operation: str, moment: str) -> None:
    """Whoever asked for it asks the next broker again, and finds it done once."""
    memory = MemoryStore()
    before = Policy()
    if operation == "replace":
        before = await At(memory).policy.replace(revoking("a"), tag_of(before))

    def stop(point: str, key: str) -> None:
        if point == f"{moment} {operation}":
            raise Killed

    store = FailingStore(memory, ScriptedFaults(), clock=InstantClock(), on_point=stop)
    with pytest.raises(Killed):
        await At(store).policy.replace(revoking("a", "b"), tag_of(before))
    successor = At(memory)
    await successor.policy.open()
    assert revoked(successor.policy.policy) == (["a", "b"] if moment == "after" else revoked(before))
    again = await successor.policy.replace(revoking("a", "b"), tag_of(before))
    assert (again.version, revoked(again)) == (before.version + 1, ["a", "b"])


@pytest.mark.parametrize("fault", [FaultKind.LOSE_ANSWER, FaultKind.FAIL_BEFORE, FaultKind.CONFLICT])
async def test_an_answer_of_the_store_that_is_lost_is_found_out(fault: FaultKind) -> None:
    memory, faults = MemoryStore(), ScriptedFaults()
    here = At(FailingStore(memory, faults, clock=InstantClock()))
    faults.add("create", fault, fault)
    first = await here.policy.replace(revoking("a"), tag_of(Policy()))
    faults.add("replace", fault, fault)
    second = await here.policy.replace(revoking("b"), tag_of(first))
    assert (first.version, second.version, faults.left) == (1, 2, 0)
    assert revoked((await PolicyObject(memory, InstantClock()).read()).policy) == ["b"]


async def test_a_store_that_never_answers_leaves_the_outcome_open() -> None:
    memory, faults = MemoryStore(), ScriptedFaults()
    here = At(FailingStore(memory, faults, clock=InstantClock()))
    faults.add("create", *[FaultKind.UNAVAILABLE] * 5)
    with pytest.raises(OutcomeUnknown):
        await here.policy.replace(revoking("a"), tag_of(Policy()))
    assert here.heard == []


@pytest.mark.parametrize("damage", ["bytes", "format", "gone"])
async def test_what_cannot_be_read_leaves_in_force_what_was_there(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    here = At(store)
    made = await here.policy.replace(revoking("a"), tag_of(Policy()))
    fetched = await store.get(keys.POLICY)
    if damage == "gone":
        await store.delete([keys.POLICY])
    else:
        broken = fetched.data.replace(b'"a"', b'"b"') if damage == "bytes" else b'{"format": "2", "version": 9}'
        await store.replace(keys.POLICY, broken, etag=fetched.info.etag)
    for _ in range(3):
        await here.policy.refresh()
    assert (revoked(here.policy.policy), here.failures, here.heard) == (["a"], 3, [1])
    assert caplog.text.count("policy_unusable") == 1
    if damage != "gone":
        with pytest.raises(
            CorruptFile, match=r"cluster/policy\.json.*; put back a copy .*, or have a broker that still runs"
        ):
            await At(store).policy.open()
    # It can be mended by any broker that has the one before.
    mended = await here.policy.replace(revoking("a", "c"), tag_of(made))
    assert mended.version == 2
    successor = At(store)
    await successor.policy.open()
    assert revoked(successor.policy.policy) == ["a", "c"]
    await here.policy.refresh()
    assert here.failures == 3


async def test_a_format_of_a_newer_version_is_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """Neither it nor what it revokes is lost, and what was in force here before stays so. A broker does not start."""
    store = MemoryStore()
    here = At(store)
    made = await here.policy.replace(revoking("a"), tag_of(Policy()))
    etag = (await store.get(keys.POLICY)).info.etag
    newer = with_check(b'{"format": 2, "version": 9, "revoked": ["c"]}')
    await store.replace(keys.POLICY, newer, etag=etag)
    await here.policy.refresh()
    assert (revoked(here.policy.policy), here.failures, here.heard) == (["a"], 1, [1])
    assert "policy_unusable" in caplog.text and "has format 2, of a newer version" in caplog.text
    with pytest.raises(Conflict, match=r"has format 2, .* at a broker of that version") as refused:
        await here.policy.replace(revoking("a", "b"), tag_of(made))
    assert refused.value.kind == "policy-newer" and (await store.get(keys.POLICY)).data == newer
    with pytest.raises(CorruptFile, match=r"has format 2, .*; start a broker of the version that has written it"):
        await At(store).policy.open()


async def test_a_store_that_does_not_answer_keeps_a_broker_from_starting() -> None:
    faults = ScriptedFaults()
    faults.add("get", FaultKind.UNAVAILABLE)
    with pytest.raises(OutcomeUnknown):
        await At(FailingStore(MemoryStore(), faults, clock=InstantClock())).policy.open()


async def test_a_tag_tells_what_a_policy_says() -> None:
    assert tag_of(revoking("a")) != tag_of(revoking("b"))
    assert tag_of(replace(revoking("a"), version=2)) != tag_of(revoking("a"))
