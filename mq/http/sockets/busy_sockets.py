"""Sockets that are busy at once take turns: else each round of the event loop would be as long as all of them."""

from mq.broker import Broker


class BusySockets:
    """Those of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._clock, self._turns = broker.clock, broker.turns.bodies
        self._busy: set[object] = set()

    async def next_piece(self, socket: object) -> None:
        """Wait until a socket that has more to do may go on. Alone it lets others go first for a round."""
        self._busy.add(socket)
        if len(self._busy) > 1:
            await self._turns.wait()
        else:
            await self._clock.sleep(0)

    def rests(self, socket: object) -> None:
        """A socket has nothing to do, or is gone."""
        self._busy.discard(socket)
