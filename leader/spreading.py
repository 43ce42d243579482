"""Which open segments move to other brokers so that what brokers carry is even: a pure decision (DESIGN.md §8).

A move costs its segment a pause, so only two things call for one, and neither is noise:

- **Number**: a broker owns two segments more than another, which carries less than `IDLE_SHARE` of the average load. So
  a broker that has just joined gets its share at once, and segments of which nothing is known, or to which nothing
  comes, are spread by number exactly. Who has fewer segments and enough to do is left with fewer.
- **Load**: a broker carries clearly more than the average (`CLEAR_SHARE` of it more), on average for minutes, and at
  this moment too. What is about to split is left to the split, whose parts are placed anyhow: it is not moved, and
  nothing else is moved out of its way. What has been opened lately stays too.

Where what such a broker has is so large that nobody has room for it, as where the average broker carries little more
than one segment can, a single move helps nobody. Then it swaps: it gives a segment for a smaller one of a broker that
carries little. Those are two pauses, so a swap has to help more (`SWAP_HELP_SHARE`).

A move takes what evens out best. By number, whoever gets it carries no more afterwards than whoever gave it, as far as
anybody would notice (`LEAST_EXCESS`); by load, less than that one did, by `HELP_SHARE`. So under a load that stays as
it is moves come to an end, and none is undone. Once there is a reason, they go on until the broker is within
`CALM_SHARE` of the average: being just past a limit moves nothing back and forth.
"""

from collections.abc import Collection, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from leader.broker_loads import SEGMENT_WEIGHT, carried_by_number, weights
from leader.coordinator import BrokerInfo
from leader.load_table import LoadTable

MOST_MOVES = 64
"""By number, at once."""
MOST_LOAD_MOVES = 8
"""By load, at once; a swap counts as one."""
CLEAR_SHARE = 0.2
IDLE_SHARE = 0.5
CALM_SHARE = 0.1
HELP_SHARE = 0.1
SWAP_HELP_SHARE = 0.25
MOST_SWAP_TRIES = 64
"""For as many brokers a swap is looked for at once: each takes a fifth of a millisecond of the event loop."""
SWAP_PARTNERS = 64
"""As many of the brokers that carry least are asked for a swap."""
SWAP_CHOICES = 8
"""As many of its segments, the heaviest, may each of the two give."""
LEAST_EXCESS = 0.1
"""In loads of one default target: so little more or less is nothing to a broker."""
_MOST_TRIES = 4 * MOST_MOVES
_ROUNDING = 1e-6

Moves = dict[str, dict[int, str]]
"""New owners of segments by id, by topic."""
_Numbers = npt.NDArray[np.float64]
_Rows = npt.NDArray[np.intp]
_Mask = npt.NDArray[np.bool_]


def moves(table: LoadTable, brokers: Sequence[BrokerInfo], *, except_topics: Collection[str] = ()) -> Moves:
    """Segments to be moved and their new owners: a few, the next round looks again.

    Topics with a transition under way are left alone as well as those excepted; what is about to be opened is counted.
    """
    fit = sorted(broker.id for broker in brokers if not broker.draining)
    if len(fit) < 2 or not len(table.segments):
        return {}
    spread = _Spread(table, fit, except_topics)
    spread.by_number()
    spread.by_load()
    plan: Moves = {}
    for row, place in spread.moved.items():
        topic = table.topic_name(int(table.segments["topic"][row]))
        plan.setdefault(topic, {})[int(table.segments["segment"][row])] = fit[place]
    return plan


class _Spread:
    """What brokers carry, what of it is not about to split, and how many segments they own, as moves change it."""

    def __init__(self, table: LoadTable, fit: Sequence[str], except_topics: Collection[str]) -> None:
        self._table = table
        self._weights = weights(table, lasting=True)
        place_of = {broker: place for place, broker in enumerate(fit)}
        places = np.array([place_of.get(owner, -1) for owner in table.owners], np.intp)
        is_fit = places >= 0
        own = places[table.segments["owner"]]
        rows = np.flatnonzero((self._weights > 0) & (own >= 0))
        # Most of the time nothing moves, and nobody asks what each of them has.
        self._of_places = cache(lambda: _by_place(_movable(table, rows, except_topics), own, len(fit)))
        self._count = np.bincount(own[rows], minlength=len(fit))
        np.add.at(self._count, [place for each in table.opening if (place := places[each.owner]) >= 0], 1)
        self._carried = np.zeros(len(fit))
        self._carried[places[is_fit]] = carried_by_number(table, self._weights, lasting=True)[is_fit]
        self._mean = float(self._carried.mean())
        now = np.zeros(len(fit))
        now[places[is_fit]] = carried_by_number(table, weights(table))[is_fit]
        self._is_busy_now = now > now.mean()
        splitting = rows[_about_to_split(table, rows)]
        self._staying = self._carried - np.bincount(own[splitting], self._weights[splitting], len(fit))
        # What has nothing to do is no load: where that is all there is, the number alone counts.
        self._mean_load = max(self._mean - SEGMENT_WEIGHT * float(self._count.mean()), 0.0)
        self.moved: dict[int, int] = {}

    def by_number(self) -> None:
        """From whoever has most segments to whoever has fewest, as far as the load permits."""
        giving = np.ones(len(self._count), np.bool_)
        # Where there is no load to speak of, all may take.
        taking = self._carried <= self._mean - (1 - IDLE_SHARE) * self._mean_load + _ROUNDING
        enough = self._mean - CALM_SHARE * self._mean_load + _ROUNDING
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

    def by_load(self) -> None:
        """From whoever carries most to whoever carries least, where it is clearly more than the average."""
        settled, giving = _settled(self._table), self._is_busy_now.copy()
        share, left, swaps_left = CLEAR_SHARE, MOST_LOAD_MOVES, MOST_SWAP_TRIES
        while left:
            busiest, idlest = int(np.argmax(np.where(giving, self._staying, -1))), int(np.argmin(self._carried))
            excess = float(self._staying[busiest] - self._mean)
            if not giving[busiest] or excess <= max(share * self._mean_load, LEAST_EXCESS):
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
        """Move what evens out the two best, if there is anything that helps."""
        excess, room = self._staying[giver] - self._mean, self._mean - self._carried[taker]
        row = self._best(giver, min(excess, room), excess + room - HELP_SHARE * self._mean_load, among=settled)
        if row is not None:
            self._move(row, giver, taker)
        return row is not None

    def _swaps(self, giver: int, settled: _Mask) -> bool:
        """Swap so that the busier of the two carries least, with whoever that is best with, if that helps enough."""
        partners = np.argsort(self._carried, kind="stable")[:SWAP_PARTNERS]
        offers = [self._heaviest(place, settled) for place in partners]
        given, taken = self._heaviest(giver, settled), np.concatenate(offers)
        if not len(given) or not len(taken):
            return False
        of = np.repeat(partners, [len(offer) for offer in offers])
        less = self._weights[given][:, None] - self._weights[taken]
        after = np.maximum(self._staying[giver] - less, self._carried[of] + less)
        gives, takes = divmod(int(np.argmin(after)), len(taken))
        helps = self._staying[giver] - after[gives, takes]
        if helps < max(SWAP_HELP_SHARE * self._mean_load, LEAST_EXCESS):
            return False
        self._move(int(given[gives]), giver, int(of[takes]))
        self._move(int(taken[takes]), int(of[takes]), giver)
        return True

    def _heaviest(self, place: int, settled: _Mask) -> _Rows:
        rows = self._of_places()[place]
        rows = rows[settled[rows]]
        heaviest: _Rows = rows[np.argsort(-self._weights[rows], kind="stable")[:SWAP_CHOICES]]
        return heaviest

    def _best(self, place: int, wanted: float, most: float, *, among: _Mask | None = None) -> int | None:
        """Of those that broker may give, the one that weighs nearest to `wanted`, and no more than `most`."""
        rows = self._of_places()[place]
        if among is not None:
            rows = rows[among[rows]]
        weighing = self._weights[rows]
        off = np.where(weighing <= most + _ROUNDING, np.abs(weighing - wanted), np.inf)
        best = int(np.argmin(off)) if len(off) else 0
        return int(rows[best]) if len(off) and np.isfinite(off[best]) else None

    def _move(self, row: int, giver: int, taker: int) -> None:
        self.moved[row] = taker
        self._of_places()[giver] = self._of_places()[giver][self._of_places()[giver] != row]
        for place, sign in ((giver, -1), (taker, 1)):
            self._count[place] += sign
            self._carried[place] += sign * self._weights[row]
            self._staying[place] += sign * self._weights[row]


def _first(by: _Numbers, then: _Numbers) -> int:
    """The place of the largest `by`, of several the one with the largest `then`."""
    largest = np.flatnonzero(by == by.max())
    return int(largest[np.argmax(then[largest])])


def _movable(table: LoadTable, rows: _Rows, except_topics: Collection[str]) -> _Rows:
    topics = table.topics
    segments = table.segments
    stays = topics["busy"].copy()
    stays[segments["topic"][segments["leaving"]]] = True
    stays[[number for topic in except_topics if (number := table.topic_number(topic)) is not None]] = True
    of = segments["topic"][rows]
    # A move would keep it from its split.
    movable: _Rows = rows[~(stays[of] | _about_to_split(table, rows))]
    return movable


def _about_to_split(table: LoadTable, rows: _Rows) -> _Mask:
    """Which of these are above their targets; unless no cut has been found."""
    segments, topics = table.segments[["topic", "recent", "held_until_seconds"]][rows], table.topics
    can_split = topics["scaling"] & (topics["open"] < topics["max_segments"])
    above = (segments["recent"] >= 1) & np.isneginf(segments["held_until_seconds"])
    splitting: _Mask = above & can_split[segments["topic"]]
    return splitting


def _by_place(rows: _Rows, places: _Rows, count: int) -> list[_Rows]:
    """The rows of each place."""
    of = places[rows]
    return np.split(rows[np.argsort(of, kind="stable")], np.cumsum(np.bincount(of, minlength=count))[:-1])


def _settled(table: LoadTable) -> _Mask:
    """Old enough for each of its topic's rules to have spoken."""
    segments = table.segments
    is_old: _Mask = segments["age_seconds"] >= table.topics["merge_age_seconds"][segments["topic"]]
    return is_old
