"""What the coordinator makes of rounds that end well, badly, late or never; ZooKeeper itself is a script."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import pytest

from filer.clock import ManualClock, settle
from leader.membership.cluster_view import CERTAIN_SHARE
from leader.membership.coordinator import BrokerInfo, CoordinationFailed
from leader.membership.zookeeper_coordinator import ZooKeeperCoordinator
from leader.membership.zookeeper_round import Errand, RoundResult
from tests.support.inline_executor import InlineExecutor

GRANTED_SECONDS = 6.0
CERTAIN_SECONDS = GRANTED_SECONDS * CERTAIN_SHARE
ME, OTHER = (BrokerInfo(name, f"http://{name}", "", "1") for name in ("me", "other"))


ALONE = RoundResult(GRANTED_SECONDS, (ME,), "me", True, {}, session_id=1)


@dataclass
class ScriptedSession:
    """Answers every round with `seen`, or fails it with `failure`. `during` happens within a round."""

    seen: RoundResult = ALONE
    failure: Exception | None = None
    during: Callable[[], None] = lambda: None
    errands: list[Errand] = field(default_factory=list)
    closed: bool = False

    def round(self, errand: Errand) -> RoundResult:
        self.errands.append(errand)
        self.during()
        if self.failure is not None:
            raise self.failure
        return self.seen

    def close(self, timeout_seconds: float) -> None:
        self.closed = True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def session() -> ScriptedSession:
    return ScriptedSession()


@pytest.fixture
async def coordinator(clock: ManualClock, session: ScriptedSession) -> AsyncIterator[ZooKeeperCoordinator]:
    """Not joined yet."""
    made = ZooKeeperCoordinator(
        "127.0.0.1:9", "c", clock, session_timeout_seconds=10, session=session, executor=InlineExecutor()
    )
    yield made
    await made.leave()


async def test_joined_is_when_a_round_has_ended_well(
    coordinator: ZooKeeperCoordinator, clock: ManualClock, session: ScriptedSession
) -> None:
    session.failure = CoordinationFailed("not connected")
    joining = asyncio.create_task(coordinator.join(ME))
    await clock.advance(2)
    assert not joining.done() and not coordinator.in_touch() and coordinator.session_timeout_seconds == 10
    session.failure = None
    await clock.advance(2)
    await joining
    assert coordinator.in_touch() and coordinator.leads()
    assert (coordinator.brokers(), coordinator.leader()) == ((ME,), "me")
    assert coordinator.session_timeout_seconds == GRANTED_SECONDS


async def test_it_is_certain_for_two_thirds_of_the_session_and_says_when_it_is_not(
    coordinator: ZooKeeperCoordinator, clock: ManualClock, session: ScriptedSession
) -> None:
    await coordinator.join(ME)
    told: list[bool] = []
    coordinator.on_change(lambda: told.append(coordinator.leads()))
    await clock.advance(CERTAIN_SECONDS * 10)
    assert coordinator.in_touch() and told == [], "round after round"
    session.failure = CoordinationFailed("gone")
    await clock.advance(CERTAIN_SECONDS + 0.01)
    assert not coordinator.in_touch() and not coordinator.leads() and told == [False]
    assert (coordinator.brokers(), coordinator.leader()) == ((ME,), "me"), "what was known stays"
    session.failure = None
    await clock.advance(2)
    assert coordinator.leads() and told == [False, True]


async def test_the_proof_counts_from_when_the_round_began(
    coordinator: ZooKeeperCoordinator, clock: ManualClock, session: ScriptedSession
) -> None:
    def slow() -> None:
        clock._now_us += int((CERTAIN_SECONDS - 0.5) * 1e6)
        session.during = fail

    def fail() -> None:
        session.failure = CoordinationFailed("gone")

    session.during = slow
    await coordinator.join(ME)
    assert coordinator.in_touch()
    await clock.advance(0.6)
    assert not coordinator.in_touch()


async def test_a_stopped_process_is_certain_of_nothing_when_it_goes_on(
    coordinator: ZooKeeperCoordinator, clock: ManualClock
) -> None:
    await coordinator.join(ME)
    clock._now_us += int(GRANTED_SECONDS * 1e6)  # nothing of this process ran meanwhile
    assert not coordinator.in_touch() and not coordinator.leads()


async def test_whoever_was_in_doubt_or_had_another_session_has_come_in_touch_anew(
    coordinator: ZooKeeperCoordinator, clock: ManualClock, session: ScriptedSession
) -> None:
    await coordinator.join(ME)
    first = coordinator.touch_count
    await clock.advance(CERTAIN_SECONDS * 10)
    assert coordinator.touch_count == first, "round after round"
    clock._now_us += int(GRANTED_SECONDS * 1e6)  # stopped, and nobody looked before the next round
    await clock.advance(0.01)
    assert coordinator.in_touch() and coordinator.touch_count == first + 1
    session.seen = replace(ALONE, session_id=2)
    await clock.advance(CERTAIN_SECONDS)
    assert coordinator.in_touch() and coordinator.touch_count == first + 2
    session.seen = replace(ALONE, session_id=2, registered=7)
    await clock.advance(CERTAIN_SECONDS)
    assert coordinator.in_touch() and coordinator.touch_count == first + 3, "somebody deleted its node in between"


async def test_what_it_says_of_others_was_seen_when_the_last_good_round_began(
    coordinator: ZooKeeperCoordinator, clock: ManualClock, session: ScriptedSession
) -> None:
    began_seconds = clock.monotonic_seconds()
    await coordinator.join(ME)
    assert coordinator.seen_seconds == began_seconds
    session.failure = CoordinationFailed("gone")
    await clock.advance(CERTAIN_SECONDS)
    assert coordinator.seen_seconds == began_seconds


async def test_news_are_told_when_there_are_some_whatever_listeners_do(
    coordinator: ZooKeeperCoordinator, clock: ManualClock, session: ScriptedSession
) -> None:
    told: list[str | None] = []

    def broken() -> None:
        raise ZeroDivisionError

    coordinator.on_change(broken)
    coordinator.on_change(lambda: told.append(coordinator.leader()))
    await coordinator.join(ME)
    await clock.advance(10)
    assert told == ["me"]
    session.seen = RoundResult(GRANTED_SECONDS, (OTHER, ME), "other", False, {}, session_id=1)
    await clock.advance(10)
    assert told == ["me", "other"] and not coordinator.leads()
    assert coordinator.brokers() == (ME, OTHER) and coordinator.by_age() == (OTHER, ME)


async def test_what_is_announced_is_done_once_and_again_where_the_round_failed(
    coordinator: ZooKeeperCoordinator, clock: ManualClock, session: ScriptedSession
) -> None:
    await coordinator.join(ME)
    session.failure = CoordinationFailed("gone")
    for topic in ("a", "b", "a"):
        coordinator.announce(topic)
    await clock.advance(1)
    coordinator.announce("c")
    session.failure = None
    session.errands.clear()
    await clock.advance(10)
    assert [each.announce for each in session.errands if each.announce] == [["b", "a", "c"]]


async def test_of_too_many_announcements_the_newest_are_kept(
    coordinator: ZooKeeperCoordinator, session: ScriptedSession, clock: ManualClock
) -> None:
    for number in range(10_050):
        coordinator.announce(f"t{number}")
    await coordinator.join(ME)
    await clock.advance(30)
    announced = [topic for errand in session.errands for topic in errand.announce]
    assert announced == [f"t{number}" for number in range(50, 10_050)]
    assert max(len(errand.announce) for errand in session.errands) == 100


async def test_a_topic_is_told_when_its_counter_differs(
    coordinator: ZooKeeperCoordinator, session: ScriptedSession, clock: ManualClock
) -> None:
    heard: list[str] = []
    coordinator.on_topic_change(heard.append)
    await coordinator.join(ME)
    coordinator.follow("t")
    coordinator.follow("t")
    session.seen = replace(ALONE, counters={"t": 0})
    await clock.advance(10)
    assert [errand.read for errand in session.errands if errand.read] == [["t"]] and heard == ["t"]
    coordinator.read_again("t")
    await clock.advance(1)
    assert heard == ["t"], "nothing was announced"
    session.seen = replace(ALONE, counters={"t": 7})
    coordinator.read_again(None)
    await clock.advance(1)
    assert heard == ["t", "t"]
    coordinator.read_again("unknown")
    await clock.advance(1)
    assert session.errands[-1].read == []


async def test_what_is_announced_of_the_broker_changes_with_the_next_round(
    coordinator: ZooKeeperCoordinator, session: ScriptedSession, clock: ManualClock
) -> None:
    await coordinator.join(ME)
    changed = BrokerInfo("me", "http://me", "", "1", draining=True)
    await coordinator.join(changed)
    await settle()
    await clock.advance(0.1)
    assert session.errands[-1].broker == changed
    with pytest.raises(ValueError, match="another broker"):
        await coordinator.join(OTHER)


async def test_who_resigns_leads_no_more_at_once_and_for_good(
    coordinator: ZooKeeperCoordinator, session: ScriptedSession, clock: ManualClock
) -> None:
    await coordinator.join(ME)
    told: list[bool] = []
    coordinator.on_change(lambda: told.append(coordinator.leads()))
    assert coordinator.leads() and session.errands[-1].may_lead
    coordinator.resign()
    assert not coordinator.leads() and told == [False]
    # Also where a round that was under way finds itself elected.
    await clock.advance(10)
    assert not coordinator.leads() and not session.errands[-1].may_lead
    assert coordinator.in_touch() and coordinator.brokers() == (ME,)


async def test_who_leaves_knows_and_does_nothing_more(
    coordinator: ZooKeeperCoordinator, session: ScriptedSession, clock: ManualClock
) -> None:
    await coordinator.join(ME)
    await coordinator.leave()
    assert session.closed
    assert (coordinator.brokers(), coordinator.leader(), coordinator.leads()) == ((), None, False)
    rounds = len(session.errands)
    coordinator.announce("t")
    await clock.advance(100)
    await settle()
    assert len(session.errands) == rounds


async def test_leaving_without_having_joined(coordinator: ZooKeeperCoordinator, session: ScriptedSession) -> None:
    await coordinator.leave()
    assert session.errands == []
