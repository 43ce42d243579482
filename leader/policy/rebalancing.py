"""Which open segments move to other brokers so that all brokers carry about the same: a pure decision.

See docs/design.md §8. A move costs its segment a pause, so a segment moves for two reasons only, and neither is noise:

- **Number**: a broker owns two segments more than another broker, which carries less than `IDLE_SHARE` of the average
  traffic. So a broker that has just joined gets its share at once, and segments without traffic, or with unknown
  traffic, are spread by number exactly. A broker that has fewer segments but enough to do is left with fewer.
- **Traffic**: a broker carries clearly more than the average (by `CLEAR_SHARE`), both on average over minutes and at
  this moment. Segments that are about to split are not moved, because the split assigns brokers to its parts anyhow,
  and no other segment is moved out of their way. Segments that opened lately stay too.

The segments of such a broker may be so large that no other broker has room for one, for example if the average broker
carries little more than one segment. Then a single move helps no broker, and the broker swaps: it gives a segment for a
smaller one of a broker that carries little. A swap costs two pauses, so it has to help more (`SWAP_HELP_SHARE`).

Each move is the one that evens out best. After a move by number, the taker carries no more than the giver did, within
`LEAST_EXCESS`. After a move by traffic, the taker carries less than the giver did, by `HELP_SHARE`. So under steady
traffic the moves come to an end, and none is undone. Moves by traffic go on until the broker is within `CALM_SHARE` of
the average: so being just past a limit moves nothing back and forth.
"""

from collections.abc import Collection, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from leader.membership.coordinator import BrokerInfo
from leader.traffic.broker_traffic import SEGMENT_WEIGHT, carried_by_number, weights
from leader.traffic.traffic_table import TrafficTable

MOST_MOVES = 64
"""Moves by number at a time."""
MOST_TRAFFIC_MOVES = 8
"""Moves by traffic at a time; a swap counts as one."""
CLEAR_SHARE = 0.2
IDLE_SHARE = 0.5
CALM_SHARE = 0.1
HELP_SHARE = 0.1
SWAP_HELP_SHARE = 0.25
MOST_SWAP_TRIES = 64
"""Searches for a swap at a time. Each takes a fifth of a millisecond of the event loop."""
SWAP_PARTNERS = 64
"""A swap is searched among so many of the brokers that carry least."""
SWAP_CHOICES = 8
"""A swap is searched among so many of the heaviest segments of each of the two brokers."""
LEAST_EXCESS = 0.1
"""A difference that does not matter to a broker, in multiples of one default target."""
_MOST_TRIES = 4 * MOST_MOVES
_ROUNDING = 1e-6

Moves = dict[str, dict[int, str]]
"""New owners of segments by id, by topic."""
_Numbers = npt.NDArray[np.float64]
_Rows = npt.NDArray[np.intp]
_Mask = npt.NDArray[np.bool_]


def rebalance(table: TrafficTable, brokers: Sequence[BrokerInfo], *, except_topics: Collection[str] = ()) -> Moves:
    """Segments to move and their new owners, a few at a time: the next round decides again.

    Topics with a transition under way, and `except_topics`, are left alone. Segments that are about to open count.
    """
    fit = sorted(broker.id for broker in brokers if not broker.draining)
    if len(fit) < 2 or not len(table.segments):
        return {}
    balance = _Balance(table, fit, except_topics)
    balance.move_by_number()
    balance.move_by_traffic()
    plan: Moves = {}
    for row, broker in balance.moved.items():
        topic = table.topic_name(int(table.segments["topic"][row]))
        plan.setdefault(topic, {})[int(table.segments["segment"][row])] = fit[broker]
    return plan


class _Balance:
    """What each broker carries, how much of that is not about to split, and how many segments it owns.

    Brokers are indexes into `fit`. Moves change the numbers.
    """

    def __init__(self, table: TrafficTable, fit: Sequence[str], except_topics: Collection[str]) -> None:
        self._table = table
        self._weights = weights(table, lasting=True)
        index_of = {broker: index for index, broker in enumerate(fit)}
        indexes = np.array([index_of.get(owner, -1) for owner in table.owners], np.intp)
        is_fit = indexes >= 0
        own = indexes[table.segments["owner"]]
        rows = np.flatnonzero((self._weights > 0) & (own >= 0))
        # Most of the time nothing moves, and the rows of each broker are not needed.
        self._rows_of = cache(lambda: _by_broker(_movable(table, rows, except_topics), own, len(fit)))
        self._count = np.bincount(own[rows], minlength=len(fit))
        np.add.at(self._count, [index for each in table.opening if (index := indexes[each.owner]) >= 0], 1)
        self._carried = np.zeros(len(fit))
        self._carried[indexes[is_fit]] = carried_by_number(table, self._weights, lasting=True)[is_fit]
        self._mean = float(self._carried.mean())
        now = np.zeros(len(fit))
        now[indexes[is_fit]] = carried_by_number(table, weights(table))[is_fit]
        self._is_busy = now > now.mean()
        splitting = rows[_about_to_split(table, rows)]
        self._staying = self._carried - np.bincount(own[splitting], self._weights[splitting], len(fit))
        # The fixed weight of a segment is not traffic: without any traffic, only the number counts.
        self._mean_traffic = max(self._mean - SEGMENT_WEIGHT * float(self._count.mean()), 0.0)
        self.moved: dict[int, int] = {}

    def move_by_number(self) -> None:
        """Move from the broker with most segments to the one with fewest, as far as their traffic permits."""
        giving = np.ones(len(self._count), np.bool_)
        # If there is hardly any traffic, every broker may take.
        taking = self._carried <= self._mean - (1 - IDLE_SHARE) * self._mean_traffic + _ROUNDING
        enough = self._mean - CALM_SHARE * self._mean_traffic + _ROUNDING
        for _ in range(_MOST_TRIES):
            most = _first(np.where(giving, self._count, -1), self._carried)
            least = _first(np.where(taking, -self._count, -np.inf), -self._carried)
            more = int(self._count[most] - self._count[least])
            if len(self.moved) >= MOST_MOVES or not giving[most] or not taking[least] or more < 2:
                return
            heavier = float(self._carried[most] - self._carried[least])
            row = (
                self._best(most, heavier / more, heavier / 2 + LEAST_EXCESS / 2)
                if self._carried[least] <= enough
                else None
            )
            if row is not None:
                self._move(row, most, least)
            elif self._carried[least] < enough:
                giving[most] = False
            else:
                taking[least] = False

    def move_by_traffic(self) -> None:
        """Move from the broker that carries most to the one that carries least, if it carries clearly too much."""
        settled, giving = _settled(self._table), self._is_busy.copy()
        share, left, swaps_left = CLEAR_SHARE, MOST_TRAFFIC_MOVES, MOST_SWAP_TRIES
        while left:
            busiest, idlest = int(np.argmax(np.where(giving, self._staying, -1))), int(np.argmin(self._carried))
            excess = float(self._staying[busiest] - self._mean)
            if not giving[busiest] or excess <= max(share * self._mean_traffic, LEAST_EXCESS):
                return
            helped = self._gives(busiest, idlest, settled)
            if not helped and swaps_left:
                swaps_left -= 1
                helped = self._swaps(busiest, settled)
            if helped:
                share, left = CALM_SHARE, left - 1
            else:
                giving[busiest] = False

    def _gives(self, giver: int, taker: int, settled: _Mask) -> bool:
        """Move the segment that evens out the two brokers best, if one helps."""
        excess, room = self._staying[giver] - self._mean, self._mean - self._carried[taker]
        row = self._best(giver, min(excess, room), excess + room - HELP_SHARE * self._mean_traffic, among=settled)
        if row is not None:
            self._move(row, giver, taker)
        return row is not None

    def _swaps(self, giver: int, settled: _Mask) -> bool:
        """Swap with the broker with which the busier of the two then carries least, if that helps enough."""
        partners = np.argsort(self._carried, kind="stable")[:SWAP_PARTNERS]
        offers = [self._heaviest(partner, settled) for partner in partners]
        given, taken = self._heaviest(giver, settled), np.concatenate(offers)
        if not len(given) or not len(taken):
            return False
        of = np.repeat(partners, [len(offer) for offer in offers])
        less = self._weights[given][:, None] - self._weights[taken]
        after = np.maximum(self._staying[giver] - less, self._carried[of] + less)
        gives, takes = divmod(int(np.argmin(after)), len(taken))
        helps = self._staying[giver] - after[gives, takes]
        if helps < max(SWAP_HELP_SHARE * self._mean_traffic, LEAST_EXCESS):
            return False
        self._move(int(given[gives]), giver, int(of[takes]))
        self._move(int(taken[takes]), int(of[takes]), giver)
        return True

    def _heaviest(self, broker: int, settled: _Mask) -> _Rows:
        rows = self._rows_of()[broker]
        rows = rows[settled[rows]]
        heaviest: _Rows = rows[np.argsort(-self._weights[rows], kind="stable")[:SWAP_CHOICES]]
        return heaviest

    def _best(self, broker: int, wanted: float, most: float, *, among: _Mask | None = None) -> int | None:
        """The row the broker may give that weighs nearest to `wanted` and at most `most`; None if there is none."""
        rows = self._rows_of()[broker]
        if among is not None:
            rows = rows[among[rows]]
        weighing = self._weights[rows]
        off = np.where(weighing <= most + _ROUNDING, np.abs(weighing - wanted), np.inf)
        best = int(np.argmin(off)) if len(off) else 0
        return int(rows[best]) if len(off) and np.isfinite(off[best]) else None

    def _move(self, row: int, giver: int, taker: int) -> None:
        self.moved[row] = taker
        self._rows_of()[giver] = self._rows_of()[giver][self._rows_of()[giver] != row]
        for broker, sign in ((giver, -1), (taker, 1)):
            self._count[broker] += sign
            self._carried[broker] += sign * self._weights[row]
            self._staying[broker] += sign * self._weights[row]


def _first(by: _Numbers, then: _Numbers) -> int:
    """The index of the largest `by`; of several, the one with the largest `then`."""
    largest = np.flatnonzero(by == by.max())
    return int(largest[np.argmax(then[largest])])


def _movable(table: TrafficTable, rows: _Rows, except_topics: Collection[str]) -> _Rows:
    topics = table.topics
    segments = table.segments
    stays = topics["busy"].copy()
    stays[segments["topic"][segments["leaving"]]] = True
    stays[[number for topic in except_topics if (number := table.topic_number(topic)) is not None]] = True
    of = segments["topic"][rows]
    # A move would delay the split.
    movable: _Rows = rows[~(stays[of] | _about_to_split(table, rows))]
    return movable


def _about_to_split(table: TrafficTable, rows: _Rows) -> _Mask:
    """Which of these rows are above their targets and may split, unless no cut was found for them."""
    segments, topics = table.segments[["topic", "recent", "held_until_seconds"]][rows], table.topics
    can_split = topics["scaling"] & (topics["open"] < topics["max_segments"])
    above = (segments["recent"] >= 1) & np.isneginf(segments["held_until_seconds"])
    splitting: _Mask = above & can_split[segments["topic"]]
    return splitting


def _by_broker(rows: _Rows, owners: _Rows, count: int) -> list[_Rows]:
    """The rows of each of `count` brokers, where `owners` has the broker of every row of the table."""
    of = owners[rows]
    return np.split(rows[np.argsort(of, kind="stable")], np.cumsum(np.bincount(of, minlength=count))[:-1])


def _settled(table: TrafficTable) -> _Mask:
    """Rows of segments that are old enough for all of their topic's rules."""
    segments = table.segments
    is_old: _Mask = segments["age_seconds"] >= table.topics["merge_age_seconds"][segments["topic"]]
    return is_old
