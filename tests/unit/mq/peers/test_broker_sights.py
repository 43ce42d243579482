"""What a look at another broker shows: only a refused connection, or another broker at the address, is a refusal."""

from collections.abc import Mapping

import orjson
import pytest

from filer.clock import ManualClock
from leader.membership.coordinator import BrokerInfo
from leader.membership.refusing_brokers import Sight
from mq.base.errors import NotFound, PeerRefused, PeerSilent, PeerUnreachable
from mq.http.problems import problem_of
from mq.peers.broker_sights import BrokerSights
from mq.peers.last_heard import MOST_BROKERS, LastHeard
from mq.peers.peers import Peers
from mq.peers.transport import PeerAnswer

B = BrokerInfo("b.01", "http://b", "", "1")
WITNESS = BrokerInfo("w.01", "http://w", "", "1")


def says(**answer: str) -> PeerAnswer:
    return PeerAnswer(200, {}, orjson.dumps(answer))


def older() -> PeerAnswer:
    """A broker that does not know the path."""
    problem = problem_of(NotFound("path", "there is no such path"))
    return PeerAnswer(problem.status, {}, problem.body())


class Transport:
    """Gives one answer to everything, or fails."""

    def __init__(self, outcome: PeerAnswer | Exception) -> None:
        self.outcome = outcome
        self.sent: list[tuple[str, bytes]] = []
        self.headers: Mapping[str, str] = {}

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        self.sent.append((f"{method} {url}", bytes(body)))
        self.headers = headers
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(
    ("outcome", "sight"),
    [
        (PeerRefused(), "refused"),
        (says(broker="b.01"), "answered"),
        (says(broker="b.02"), "refused"),
        (says(broker="other.01"), "refused"),
        (older(), "answered"),
        (PeerAnswer(403, {}, b'{"type": "urn:braidmq:forbidden", "detail": "no"}'), "answered"),
        (PeerUnreachable("the network is unreachable"), "unclear"),
        (PeerSilent("timed out"), "unclear"),
        (PeerAnswer(502, {}, b"<html>bad gateway</html>"), "unclear"),
        (PeerAnswer(200, {}, b"<html>welcome</html>"), "unclear"),
    ],
    ids=lambda each: str(getattr(each, "body", each))[:40],
)
async def test_what_a_look_shows(outcome: PeerAnswer | Exception, sight: Sight) -> None:
    sights = BrokerSights(Peers(Transport(outcome)), LastHeard(ManualClock()))
    assert await sights.look(B, heard_within_seconds=10) == sight


@pytest.mark.parametrize(
    ("outcome", "sight"),
    [
        *((says(sight=each), each) for each in ("refused", "answered", "unclear")),
        (says(sight="nonsense"), "unclear"),
        (older(), "unclear"),
        (PeerRefused(), "unclear"),
        (PeerSilent("timed out"), "unclear"),
    ],
    ids=lambda each: str(getattr(each, "body", each))[:40],
)
async def test_what_a_witness_tells(outcome: PeerAnswer | Exception, sight: Sight) -> None:
    transport = Transport(outcome)
    sights = BrokerSights(Peers(transport), LastHeard(ManualClock()))
    assert await sights.ask(WITNESS, B, heard_within_seconds=1.5) == sight
    assert transport.sent == [("POST http://w/internal/v1/sight?heard=1.5", b"b.01")]


async def test_one_that_has_called_since_is_not_even_looked_at() -> None:
    clock = ManualClock()
    transport, heard = Transport(PeerRefused()), LastHeard(clock)
    sights = BrokerSights(Peers(transport), heard)
    heard.note(B.id)
    await clock.advance(1)
    assert await sights.look(B, heard_within_seconds=2) == "answered"
    assert transport.sent == []
    assert await sights.look(B, heard_within_seconds=1) == "refused"
    assert await sights.look(WITNESS, heard_within_seconds=9) == "refused"


def test_the_longest_silent_are_forgotten() -> None:
    heard = LastHeard(ManualClock())
    for number in range(MOST_BROKERS):
        heard.note(f"b{number}")
    heard.note("b0")
    heard.note("one more")
    assert [heard.within(broker, 1) for broker in ("b0", "b1", "b2", "one more")] == [True, False, True, True]


async def test_a_caller_says_who_it_is() -> None:
    transport = Transport(says(broker="b.01"))
    peers = Peers(transport)
    peers.open(b"secret", "a.01")
    await peers.presence("http://b")
    assert transport.headers["Braid-Broker"] == "a.01"


async def test_whoever_is_refused_is_told_and_looks_are_not() -> None:
    urls: list[str] = []
    peers = Peers(Transport(PeerRefused()))
    peers.when_refused(urls.append)
    with pytest.raises(PeerRefused):
        await peers.seal("http://b", "t", 0, 1, timeout_seconds=1)
    assert urls == ["http://b"]
    for look in (peers.presence("http://b"), peers.sight("http://b", "c", heard_within_seconds=0)):
        with pytest.raises(PeerRefused):
            await look
    assert urls == ["http://b"]
