"""Finds out before a broker joins whether the others accept it, and it accepts them."""

import asyncio
from collections.abc import Sequence

from filer.errors import BraidError, InvalidConfig
from leader.membership.coordinator import BrokerInfo
from mq.base.errors import PeerDenied, PeerFailed, PeerNotTrusted, PeerUnproven
from mq.peers.peers import Peers

MOST_ASKED = 16
"""The oldest brokers are asked: a key that they know, the others know too, or will soon."""


async def introduce(peers: Peers, others: Sequence[BrokerInfo]) -> None:
    """Raise `InvalidConfig` if brokers answer and none of them takes this one for a broker of its cluster.

    If it joined all the same, it would get segments that no other broker can reach. A broker that does not answer
    proves nothing: it may be dead, with a session that has not ended yet. If one answers as it should, this broker is
    one of the cluster. Others that refuse it then get their keys late, or are impostors at the addresses of dead
    brokers.

    If this broker may call others only at their listeners for brokers, all have to have one: a broker without would get
    segments that this one cannot reach.
    """
    for each in others:
        if peers.url_of(each) is None:
            raise InvalidConfig(
                f"{each.id} at {each.url} has no listener for brokers, which this one demands of all: give this one "
                "--peer-port-optional until all brokers have --peer-port. If that one has ended, its session ends soon"
            )
    asked = others[:MOST_ASKED]
    answers = await asyncio.gather(*(peers.presence(peers.url_of(each)) for each in asked), return_exceptions=True)
    refusals = []
    for other, answer in zip(asked, answers, strict=True):
        if isinstance(answer, PeerDenied | PeerUnproven | PeerNotTrusted):
            refusals.append(_refusal(other, peers.url_of(other), answer))
        elif isinstance(answer, str | PeerFailed):
            return  # older brokers do not know the path, and say so to brokers only
        elif not isinstance(answer, BraidError):
            raise answer
    if refusals:
        raise InvalidConfig(
            f"the brokers of the cluster do not take this one for one of them, and it does not join: {refusals[0]}"
        )


def _refusal(other: BrokerInfo, url: str | None, answer: BraidError) -> str:
    """Return why another broker refuses this one, and what to do about it."""
    if isinstance(answer, PeerNotTrusted):
        what = "give it a certificate of the CA that they trust, and the CA of theirs (--peer-tls-…, --tls-…)"
    elif other.peer_url and url == other.url:
        what = "give it a listener for brokers, as they have (--peer-port)"
    else:
        what = "give it the peer keys that they have (--peer-keys)"
    return f"{what}. {other.id} at {url}: {answer}"
