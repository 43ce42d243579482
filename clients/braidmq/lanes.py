"""A producer's lanes: one for each open segment, cut anew when the route has changed."""

import bisect

from braidmq.lane import Lane, Look, Pace, Ship
from braidmq.models import Route
from braidmq.placement import KeyRange
from braidmq.receipts import Pending
from filer.slots import SLOTS, slot_of

# Each is a producer of its own to the brokers, which remember a limited number of them.
MAX_KEYLESS_LANES = 4


class Lanes:
    """Which lane takes a message. One leads to all slots until `follow` has been given a route.

    Messages without keys share the lane of a topic's only segment. With several segments they have lanes of
    their own, in turns: a request of theirs is in one segment whole, wherever brokers put it, so that a
    segment that is out of order never holds back, or is repeated with, messages of another one.
    """

    def __init__(self, pace: Pace, look: Look, ship: Ship) -> None:
        self._pace = pace
        self._look = look
        self._ship = ship
        self._retiring: list[Lane] = []
        self._keyed = [self._lane(None, (0, SLOTS))]
        self._starts = [0]
        self._keyless: list[Lane] = []
        self._turn = 0
        self.route: Route | None = None

    def put(self, pending: Pending) -> None:
        """Give a message to its lane."""
        key = pending.row.key
        if len(self._keyed) == 1:
            self._keyed[0].put(pending)
        elif key is None:
            self._keyless[self._turn].put(pending)
        else:
            self._keyed[bisect.bisect_right(self._starts, slot_of(key)) - 1].put(pending)

    def take_turns(self, lane: Lane) -> None:
        """A batch has left this lane: where it is the one that gathers messages without keys, the next one does."""
        if self._keyless and lane is self._keyless[self._turn]:
            self._turn = (self._turn + 1) % len(self._keyless)

    def hurry(self) -> None:
        """Let every lane look whether its batch should go."""
        for lane in (*self._keyed, *self._keyless):
            lane.wake()

    def follow(self, route: Route | None) -> None:
        """Cut the lanes by a route, where it is another than the last.

        Messages that wait move to the lanes of the new segments, in their order. Those lanes begin when the
        requests that are in flight for any of their keys, from before this change or an earlier one, have been
        answered; so the rows of a request that has to be sent again always go before later ones.
        """
        if route is None or route is self.route:
            return
        self.route = route
        kept = {(lane.segment, lane.key_range): lane for lane in self._keyed}
        wanted = [(entry.segment, entry.range) for entry in route.segments]
        gone = [lane for place, lane in kept.items() if place not in wanted]
        self._retiring = [lane for lane in (*self._retiring, *gone) if lane.is_running]
        self._keyed = [kept.get(place) or self._lane(*place) for place in wanted]
        self._starts = [start for _, (start, _) in wanted]
        gone += self._fit_keyless()
        waiting = [pending for lane in gone for pending in lane.retire()]
        for pending in sorted(waiting, key=lambda each: each.number):
            self.put(pending)

    def _fit_keyless(self) -> list[Lane]:
        """Have as many lanes for messages without keys as for those with, within bounds; those that are too many."""
        wanted = min(len(self._keyed), MAX_KEYLESS_LANES) if len(self._keyed) > 1 else 0
        surplus, self._keyless = self._keyless[wanted:], self._keyless[:wanted]
        self._keyless += [
            Lane(self._pace, self._look, self._ship, number=each + 1) for each in range(len(self._keyless), wanted)
        ]
        self._turn = self._turn if self._turn < wanted else 0
        self._retiring += [lane for lane in surplus if lane.is_running]
        return surplus

    def _lane(self, segment: int | None, key_range: KeyRange) -> Lane:
        before = [lane for lane in self._retiring if lane.overlaps(key_range)]
        return Lane(self._pace, self._look, self._ship, segment=segment, key_range=key_range, before=before)

    async def stop(self) -> list[Pending]:
        """End every lane at once; what has no answer."""
        left: list[Pending] = []
        for lane in (*self._retiring, *self._keyed, *self._keyless):
            left += await lane.stop()
        return left
