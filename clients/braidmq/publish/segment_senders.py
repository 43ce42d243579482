"""The senders of a producer: one for each open segment, rearranged when the route changes."""

import bisect
from collections.abc import Iterator, Sequence

from braidmq.models import Route
from braidmq.publish.pending import Pending
from braidmq.publish.row_positions import KeyRange
from braidmq.publish.segment_sender import BatchTiming, RefreshRoute, SegmentSender, SendBatch
from filer.slots import SLOTS, slot_of

# To brokers each is a producer of its own, and they remember a limited number of producers.
MAX_KEYLESS_SENDERS = 4


class SegmentSenders:
    """Decides which sender takes a message. A single one covers all slots until `follow` has been given a route.

    If the topic has only one segment, messages without keys share its sender. With several segments they have senders
    of their own, which take turns. A request without keys falls into one segment as a whole, wherever brokers put it.
    So an unavailable segment never delays messages of another, and its repeated requests never carry them.
    """

    def __init__(self, timing: BatchTiming, refresh_route: RefreshRoute, send_batch: SendBatch) -> None:
        self._timing = timing
        self._refresh_route = refresh_route
        self._send_batch = send_batch
        self._retiring: list[SegmentSender] = []
        self._keyed = [self._new_sender(None, (0, SLOTS))]
        self._starts = [0]
        self._keyless: list[SegmentSender] = []
        self._next_keyless = 0
        self.route: Route | None = None

    def put(self, pending: Pending) -> None:
        """Give messages to their senders."""
        if len(self._keyed) == 1:
            self._keyed[0].put(pending)
        elif len(pending.rows) == 1:
            self._sender_of(pending.rows.keys[0]).put(pending)
        else:
            for sender, rows in self._rows_by_sender(pending.rows.keys):
                sender.put(pending if len(rows) == len(pending.rows) else pending.take(rows))

    def _sender_of(self, key: bytes | None) -> SegmentSender:
        if key is None:
            return self._keyless[self._next_keyless]
        return self._keyed[bisect.bisect_right(self._starts, slot_of(key)) - 1]

    def _rows_by_sender(self, keys: Sequence[bytes | None]) -> Iterator[tuple[SegmentSender, Sequence[int]]]:
        """The rows of each sender, in order."""
        # Imported here: a program that sends few messages starts sooner without Arrow.
        from braidmq.publish.encoding.shares import rows_by_range

        for number, rows in rows_by_range(keys, self._starts):
            yield self._keyless[self._next_keyless] if number is None else self._keyed[number], rows

    def rotate_keyless(self, sender: SegmentSender) -> None:
        """Note that a batch has left this sender. If it collected messages without keys, the next one collects now."""
        if self._keyless and sender is self._keyless[self._next_keyless]:
            self._next_keyless = (self._next_keyless + 1) % len(self._keyless)

    def flush(self) -> None:
        """Make every sender check whether its batch should go."""
        for sender in (*self._keyed, *self._keyless):
            sender.wake()

    def follow(self, route: Route | None) -> None:
        """Rearrange the senders if the route differs from the last one.

        Waiting messages move to the senders of the new segments, in order. Such a sender starts once every request in
        flight for any of its keys has been answered, also those from before earlier changes. So the rows of a request
        that must be repeated always go before later ones.
        """
        if route is None or route is self.route:
            return
        self.route = route
        current = {(sender.segment, sender.key_range): sender for sender in self._keyed}
        wanted = [(entry.segment, entry.range) for entry in route.segments]
        replaced = [sender for target, sender in current.items() if target not in wanted]
        self._retiring = [sender for sender in (*self._retiring, *replaced) if sender.is_running]
        self._keyed = [current.get(target) or self._new_sender(*target) for target in wanted]
        self._starts = [start for _, (start, _) in wanted]
        replaced += self._resize_keyless()
        waiting = [pending for sender in replaced for pending in sender.retire()]
        for pending in sorted(waiting, key=lambda each: each.order):
            self.put(pending)

    def _resize_keyless(self) -> list[SegmentSender]:
        """Keep as many senders for messages without keys as for those with keys, up to a limit. Return the surplus."""
        wanted = min(len(self._keyed), MAX_KEYLESS_SENDERS) if len(self._keyed) > 1 else 0
        surplus, self._keyless = self._keyless[wanted:], self._keyless[:wanted]
        self._keyless += [
            SegmentSender(self._timing, self._refresh_route, self._send_batch, number=index + 1)
            for index in range(len(self._keyless), wanted)
        ]
        self._next_keyless = self._next_keyless if self._next_keyless < wanted else 0
        self._retiring += [sender for sender in surplus if sender.is_running]
        return surplus

    def _new_sender(self, segment: int | None, key_range: KeyRange) -> SegmentSender:
        predecessors = [sender for sender in self._retiring if sender.overlaps(key_range)]
        return SegmentSender(
            self._timing,
            self._refresh_route,
            self._send_batch,
            segment=segment,
            key_range=key_range,
            predecessors=predecessors,
        )

    async def stop(self) -> list[Pending]:
        """End every sender at once and return the messages without an answer."""
        unanswered: list[Pending] = []
        for sender in (*self._retiring, *self._keyed, *self._keyless):
            unanswered += await sender.stop()
        return unanswered
