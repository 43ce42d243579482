"""Calls to any broker: a topic's record has changed, hand over your segments, own segments again, prove
that your store is mine.
"""

from starlette.types import Receive

from filer import keys
from filer.errors import CorruptFile, InvalidInput, ObjectNotFound
from filer.topic.topic_state import TopicState
from leader.membership.refusing_brokers import Sight
from mq.bodies.intake import Intake
from mq.broker import Broker
from mq.http.internal.topic_at import topic_at
from mq.limits.front_store import FrontStore
from mq.peers.answer_forms import StoreProof
from mq.peers.calls import Call, ToBroker, ToTopicAt, ToWitness
from mq.peers.peers import MOST_RECORD_BYTES
from mq.peers.transport import PeerAnswer

RECORDS_AT_ONCE = 4
MOST_ID_BYTES = 1000


class BrokerCalls:
    """The work of every broker for the others."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # Records have room of their own: a broker whose front store is full must learn of new owners all the same.
        self._room = FrontStore(RECORDS_AT_ONCE * MOST_RECORD_BYTES)

    async def refresh(self, call: Call[ToTopicAt, int], asked: ToTopicAt, receive: Receive) -> PeerAnswer:
        """Take a topic's newer record from the body, or read it from the store.

        Safe however late the request comes. The record was on the store once, and a record that is not newer than the
        one known here changes nothing. An owner that opens a segment by an old record finds at its first put that
        others have written there.
        """
        with Intake(self._room, MOST_RECORD_BYTES, None, wait=True) as intake:
            body = await intake.read(receive, None)
            if body and asked.topic in self._broker.topics:
                self._broker.topics.apply(_record_of(asked.topic, body))
        runtime = await topic_at(self._broker, asked.topic, asked.version)
        return call.pack(runtime.state.version)

    async def drain(self, call: Call[ToBroker, int], asked: ToBroker, receive: Receive) -> PeerAnswer:
        """Hand over all segments. Returns how many are still here."""
        return call.pack(await self._broker.drainer.hand_over_to_others())

    async def undrain(self, call: Call[ToBroker, int], asked: ToBroker, receive: Receive) -> PeerAnswer:
        """Own segments again. Returns how many."""
        return call.pack(await self._broker.drainer.take_part_again())

    async def presence(self, call: Call[ToBroker, str], asked: ToBroker, receive: Receive) -> PeerAnswer:
        """Return this broker's id: the caller may mean an earlier process at this address."""
        return call.pack(self._broker.id)

    async def sight(self, call: Call[ToWitness, Sight], asked: ToWitness, receive: Receive) -> PeerAnswer:
        """How this broker sees another one, at the address that the other one has announced itself."""
        named = await self._read_id(receive)
        found = next((info for info in self._broker.coordinator.brokers() if info.id == named), None)
        if found is None:
            return call.pack("unclear")
        look = self._broker.sights.look(found, heard_within_seconds=asked.heard_within_seconds)
        return call.pack(await look)

    async def take_refusal(self, call: Call[ToBroker, bool], asked: ToBroker, receive: Receive) -> PeerAnswer:
        """Take the news that a broker was refused at another one's address."""
        return call.pack(self._broker.refusal_watch.told(await self._read_id(receive)))

    async def prove_store(self, call: Call[ToBroker, StoreProof], asked: ToBroker, receive: Receive) -> PeerAnswer:
        """The object on this broker's store under a fresh name. A starting broker has written it to its own store."""
        key = keys.store_proof(await self._read_id(receive))
        try:
            content = (await self._broker.store.get(key)).data[:MOST_ID_BYTES].decode("latin-1")
        except ObjectNotFound:
            return call.pack(StoreProof(self._broker.id, None))
        return call.pack(StoreProof(self._broker.id, content))

    async def _read_id(self, receive: Receive) -> str:
        with Intake(self._room, MOST_ID_BYTES, None, wait=True) as intake:
            return bytes(await intake.read(receive, None)).decode("latin-1")


def _record_of(topic: str, body: bytes) -> TopicState:
    try:
        state = TopicState.from_json(body)
    except CorruptFile as error:
        raise InvalidInput(f"that is no topic's record: {error}") from error
    if state.topic != topic:
        raise InvalidInput(f"the record is that of topic {state.topic!r}, not of {topic!r}")
    return state
