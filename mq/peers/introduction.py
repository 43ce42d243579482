"""Finds out before a broker joins whether the others would know it, and it them."""

import asyncio
from collections.abc import Sequence

from filer.errors import BraidError, InvalidConfig
from leader.membership.coordinator import BrokerInfo
from mq.base.errors import PeerDenied, PeerFailed, PeerUnproven
from mq.peers.peers import Peers

MOST_ASKED = 16
"""The eldest are asked: a key that they know, the others know too, or will soon."""


async def introduce(peers: Peers, others: Sequence[BrokerInfo]) -> None:
    """Raise `InvalidConfig` if brokers answer and none of them takes this one for a broker of its cluster.

    One that joined all the same would be given segments that nobody can reach. A broker that does not answer says
    nothing: it may be dead, with a session that has not ended yet. If one answers as it should, this broker is one of
    the cluster. Others that refuse it then get their keys late, or are impostors at the addresses of dead brokers.
    """
    answers = await asyncio.gather(*(peers.presence(each.url) for each in others[:MOST_ASKED]), return_exceptions=True)
    refusals = []
    for other, answer in zip(others, answers, strict=False):
        if isinstance(answer, PeerDenied | PeerUnproven):
            refusals.append(f"{other.id} at {other.url}: {answer}")
        elif isinstance(answer, str | PeerFailed):
            return  # older brokers do not know the path, and say so to brokers only
        elif not isinstance(answer, BraidError):
            raise answer
    if refusals:
        raise InvalidConfig(
            "the brokers of the cluster do not take this one for one of them, and it does not join: give it the peer "
            f"keys that they have (--peer-keys). {refusals[0]}"
        )
