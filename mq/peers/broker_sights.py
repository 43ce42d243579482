"""What this broker sees of another one, and what others report that they see (docs/design.md §8)."""

from filer.errors import BraidError, OutcomeUnknown
from leader.membership.coordinator import BrokerInfo
from leader.membership.refusing_brokers import Sight
from mq.base.errors import PeerRefused, PeerUnreachable
from mq.peers.last_heard import LastHeard
from mq.peers.peers import Peers


class BrokerSights:
    """The `Eyes` of this broker. `heard` has the calls of other brokers."""

    def __init__(self, peers: Peers, heard: LastHeard) -> None:
        self._peers, self._heard = peers, heard

    async def look(self, broker: BrokerInfo, *, heard_within_seconds: float) -> Sight:
        """As `Eyes.look`.

        If another broker answers at the address, such as the next incarnation, this one does not listen any more.
        """
        if self._heard.within(broker.id, heard_within_seconds):
            return "answered"
        try:
            return "answered" if await self._peers.presence(self._peers.url_of(broker)) == broker.id else "refused"
        except PeerRefused:
            return "refused"
        except (PeerUnreachable, OutcomeUnknown):
            return "unclear"
        except BraidError:
            # Any refusal of a request is an answer. Older brokers do not know the path.
            return "answered"

    async def ask(self, witness: BrokerInfo, broker: BrokerInfo, *, heard_within_seconds: float) -> Sight:
        """As `Eyes.ask`. Older brokers do not report it."""
        try:
            url = self._peers.url_of(witness)
            return await self._peers.sight(url, broker.id, heard_within_seconds=heard_within_seconds)
        except BraidError:
            return "unclear"
