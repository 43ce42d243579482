"""Sockets that are busy at once take turns: otherwise a round of the event loop would take as long as all of them."""

from mq.broker import Broker


class BusySockets:
    """The busy sockets of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._clock, self._turns = broker.clock, broker.turns.bodies
        self._busy: set[object] = set()

    async def next_piece(self, socket: object) -> None:
        """Wait until a socket with more to do may go on. A lone socket lets other work go first for a round."""
        self._busy.add(socket)
        if len(self._busy) > 1:
            await self._turns.wait()
        else:
            await self._clock.sleep(0)

    def rests(self, socket: object) -> None:
        """Note that a socket has nothing to do, or is gone."""
        self._busy.discard(socket)
