"""Whether what a stream group's members have seen may be (docs/consuming.md): pure functions of a history."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

from tests.cluster.group_storms.common_history import key_and_index
from tests.cluster.group_storms.stream_history import Change, Committed, Given, Start, StreamHistory, Tenure
from tests.cluster.group_storms.verdict import Verdict, spread

CALM_SECONDS = 5.0
"""Whatever has happened so long ago has no more effects."""
ZOMBIES = ("pause-owner", "refuse", "cut-owner-from-zookeeper", "lose-zookeeper", "cut-owner-from-store")
"""Faults after which a broker may live that coordinates the group no more, and does not know. What it says of the group
is old, and nothing follows from that."""
DEATHS = ("kill", "pause", "cut")


class _Message(NamedTuple):
    """Where a message is."""

    segment: int
    offset: int


def judge(history: StreamHistory) -> Verdict:
    """The verdict."""
    complaints = [
        *history.wrong_answers,
        *_never_read(history),
        *_stored_twice(history),
        *_two_holders(history),
        *_not_in_a_row(history),
        *_too_early(history),
        *_two_commits_count(history),
        *_stale_commits(history),
        *_refused_for_nothing(history),
        *_going_back(history, after_zombies=False),
        *_moved_for_nothing(history),
    ]
    return Verdict(complaints, _figures(history))


# -- messages ----------------------------------------------------------------------------------------------------


def _never_read(history: StreamHistory) -> Iterator[str]:
    """Every message reaches the group at least once."""
    found = {value for each in history.read for value in each.values}
    for published in history.published:
        if published.value not in found:
            yield f"{published.value!r} has reached no member"


def _stored_twice(history: StreamHistory) -> Iterator[str]:
    for value, found in _messages(history).items():
        if len(found) > 1:
            yield f"{value!r} is stored as {[f'{segment}-{offset}' for segment, offset in sorted(found)]}"


def _messages(history: StreamHistory) -> dict[str, set[_Message]]:
    found: dict[str, set[_Message]] = defaultdict(set)
    for read in history.read:
        for offset, value in enumerate(read.values, read.first):
            found[value].add(_Message(read.tenure.segment, offset))
    return found


def _not_in_a_row(history: StreamHistory) -> Iterator[str]:
    """Whoever has a segment reads it from the position on that it was told, and gets each key's messages in a row."""
    begins = {(each.start, each.tenure): each.position for each in history.given}
    last: dict[tuple[Start, Tenure, str], int] = {}
    for read in history.read:
        place = (read.start, read.tenure)
        wanted = begins.get(place)
        if wanted is None or read.first != wanted:
            yield f"{_named(*place)} goes on at {read.first}, and not at {wanted}"
        begins[place] = read.first + len(read.values)
        for value in read.values:
            key, index = key_and_index(value)
            before = last.get((*place, key))
            if before is not None and index != before + 1:
                yield f"{_named(*place)} has {value!r} behind {key!r} {before}"
            last[*place, key] = index


def _too_early(history: StreamHistory) -> Iterator[str]:
    """A member's first message of a key comes only when somebody has sent the commit of all that are ahead of it.

    That is the order between two commits: whoever had messages before, and has not committed them, has them again.
    """
    places = {value: min(found) for value, found in _messages(history).items()}
    by_key: dict[str, dict[int, float]] = defaultdict(dict)
    commits = _Commits(history)
    for value, message in places.items():
        key, index = key_and_index(value)
        by_key[key][index] = commits.sent_at(message)
    # By key and index: when all that are ahead were done.
    done_at = {
        key: list(accumulate((found.get(index, inf) for index in range(max(found) + 1)), max, initial=0.0))
        for key, found in by_key.items()
    }
    seen: set[tuple[Start, Tenure, str]] = set()
    for read in history.read:
        for value in read.values:
            key, index = key_and_index(value)
            place = (read.start, read.tenure, key)
            if place not in seen:
                seen.add(place)
                if done_at[key][index] > read.at:
                    yield f"{_named(*place[:2])} has {value!r} before all ahead of it were committed"


class _Commits:
    """Which commit of a segment came first that covers a message. One of which nobody knows may have held."""

    def __init__(self, history: StreamHistory) -> None:
        by_segment: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for each in history.committed:
            if each.held is not False:
                by_segment[each.tenure.segment].append((each.position, each.sent_at))
        self._positions: dict[int, list[int]] = {}
        self._first_sent: dict[int, list[float]] = {}
        for segment, found in by_segment.items():
            found.sort()
            self._positions[segment] = [position for position, _ in found]
            self._first_sent[segment] = [*accumulate((at for _, at in reversed(found)), min)][::-1]

    def sent_at(self, message: _Message) -> float:
        """When that was sent; never, if there is none."""
        positions = self._positions.get(message.segment, [])
        place = bisect_right(positions, message.offset)
        return self._first_sent[message.segment][place] if place < len(positions) else inf


# -- who has what ------------------------------------------------------------------------------------------------


def _two_holders(history: StreamHistory) -> Iterator[str]:
    holders: dict[Tenure, Start] = {}
    for given in history.given:
        holder = holders.setdefault(given.tenure, given.start)
        if holder != given.start:
            yield f"{_named(holder, given.tenure)}, and so is {given.start.member} start {given.start.number}"


def _two_commits_count(history: StreamHistory) -> Iterator[str]:
    """What was accepted under an epoch lies below where every later one begins."""
    accepted: dict[Tenure, int] = {}
    for each in history.committed:
        if each.held:
            accepted[each.tenure] = max(each.position, accepted.get(each.tenure, 0))
    begins = _begins(history)
    for tenure, position in accepted.items():
        for epoch, given in begins[tenure.segment].items():
            if epoch > tenure.epoch and position > given.position:
                yield (
                    f"position {position} of segment {tenure.segment} was accepted under epoch {tenure.epoch}, "
                    f"and epoch {epoch} begins at {given.position}"
                )


def _stale_commits(history: StreamHistory) -> Iterator[str]:
    """Nobody moves a position once a later epoch was told."""
    begins = _begins(history)
    before: dict[Tenure, int] = {}
    for each in sorted(history.committed, key=lambda each: each.sent_at):
        ended_at = _told_from(begins, each.tenure)
        if each.held is not False and each.sent_at < ended_at:
            before[each.tenure] = max(each.position, before.get(each.tenure, 0))
        first = begins[each.tenure.segment].get(each.tenure.epoch)
        known = max(before.get(each.tenure, 0), 0 if first is None else first.position)
        if each.held and each.sent_at >= ended_at and each.position > known:
            yield f"{_named(each.start, each.tenure)} and has committed {each.position}, after a later epoch was told"


def _refused_for_nothing(history: StreamHistory) -> Iterator[str]:
    """Whoever keeps a segment is never refused: who joins or leaves stops only what moves."""
    last_held: dict[Tenure, Committed] = {}
    for each in history.committed:
        if each.held and each.sent_at >= last_held.get(each.tenure, each).sent_at:
            last_held[each.tenure] = each
    highest: dict[Tenure, int] = {}
    for each in sorted(history.committed, key=lambda each: each.sent_at):
        later = last_held.get(each.tenure)
        if each.held is False and later is not None and later.sent_at > each.answered_at:
            if later.position > max(highest.get(each.tenure, 0), each.position):
                yield f"{_named(each.start, each.tenure)} was refused {each.position}, and not {later.position} later"
        elif each.held is not False:
            highest[each.tenure] = max(each.position, highest.get(each.tenure, 0))


def _moved_for_nothing(history: StreamHistory) -> Iterator[str]:
    """Whoever joins or leaves stops only the segments that move.

    A segment gets another epoch for the same start of a member only if that was to let it go. In calm times, what is
    asked back goes to another one.
    """
    begins = _begins(history)
    asked_back = {each.tenure: each for each in history.asked_back}
    for found in begins.values():
        for epoch, given in found.items():
            after = found.get(epoch + 1)
            if after is None or after.start != given.start:
                continue
            asked = asked_back.get(given.tenure)
            if asked is None:
                yield f"{_named(given.start, given.tenure)} has got it again under epoch {epoch + 1}"
            elif _is_calm(history, asked.at, after.at):
                yield f"{_named(given.start, given.tenure)} was asked for it, and has got it again"
    for asked in history.asked_back:
        # Who has just taken over gives a segment to whom it has heard, and asks for it back as it hears others.
        if asked.tenure.segment not in begins and _is_calm(history, asked.at, asked.at):
            yield f"{_named(asked.start, asked.tenure)}, which it is to let go and was never given"


def _is_calm(history: StreamHistory, from_at: float, to_at: float) -> bool:
    """Whether at most one thing has happened to members, and none to brokers."""
    faults = [each for each in history.faults if _near(each.began_at, each.ended_at, from_at, to_at)]
    changes = [each for each in history.changes if _near(each.began_at, each.ended_at, from_at, to_at)]
    return not faults and len(changes) < 2


def _near(began_at: float, ended_at: float, from_at: float, to_at: float) -> bool:
    return began_at <= to_at and ended_at >= from_at - CALM_SECONDS


def _told_from(begins: dict[int, dict[int, Given]], tenure: Tenure) -> float:
    """When a later epoch was told for the first time."""
    return min((given.at for epoch, given in begins[tenure.segment].items() if epoch > tenure.epoch), default=inf)


def _begins(history: StreamHistory) -> dict[int, dict[int, Given]]:
    """Who was told first of each epoch, by segment."""
    begins: dict[int, dict[int, Given]] = defaultdict(dict)
    for given in history.given:
        begins[given.tenure.segment].setdefault(given.tenure.epoch, given)
    return begins


# -- positions ---------------------------------------------------------------------------------------------------


def _going_back(history: StreamHistory, *, after_zombies: bool) -> Iterator[str]:
    """What is told of a position is no less than what was told, or committed, before that was asked for.

    A broker that coordinates the group no more, and does not know, tells what it knows: that is only counted.
    """
    known: list[tuple[float, int, int]] = [
        (each.answered_at, each.tenure.segment, each.position) for each in history.committed if each.held
    ]
    known += [
        (each.at, segment, position) for each in history.described for segment, position in each.positions.items()
    ]
    known.sort()
    reached: dict[int, int] = {}
    place = 0
    for each in sorted(history.described, key=lambda each: each.asked_at):
        while place < len(known) and known[place][0] <= each.asked_at:
            _, segment, position = known[place]
            reached[segment] = max(position, reached.get(segment, 0))
            place += 1
        for segment, position in each.positions.items():
            if position < reached.get(segment, 0) and _is_by_a_zombie(history, each.at) == after_zombies:
                yield f"the position of segment {segment} was {reached[segment]}, and then {position}"


def _is_by_a_zombie(history: StreamHistory, at: float) -> bool:
    return any(
        fault.name in ZOMBIES and fault.began_at <= at <= fault.ended_at + CALM_SECONDS for fault in history.faults
    )


# -- what is printed ---------------------------------------------------------------------------------------------


def around(history: StreamHistory, complaint: str) -> list[str]:
    """Everything about the segments and the keys that a complaint names, in the order of time."""
    segments = {int(each) for each in re.findall(r"segment (\d+)", complaint)}
    keys = set(re.findall(r"'(\d+\.\d+)", complaint))
    segments |= {
        read.tenure.segment for read in history.read for value in read.values if key_and_index(value)[0] in keys
    }
    events: list[tuple[float, str]] = [(each.began_at, str(each)) for each in history.faults]
    events += [(each.began_at, str(each)) for each in history.changes]
    events += [(each.at, str(each)) for each in history.given if each.tenure.segment in segments]
    events += [(each.at, str(each)) for each in history.asked_back if each.tenure.segment in segments]
    events += [(each.at, str(each)) for each in history.read if each.tenure.segment in segments]
    events += [(each.sent_at, str(each)) for each in history.committed if each.tenure.segment in segments]
    return [complaint, *(f"{at:.3f} {event}" for at, event in sorted(events))]


def _named(start: Start, tenure: Tenure) -> str:
    return f"segment {tenure.segment} under epoch {tenure.epoch} is with {start.member} start {start.number}"


def _figures(history: StreamHistory) -> str:
    count = sum(len(each.values) for each in history.read)
    held = Counter(each.held for each in history.committed)
    stale = sum(1 for _ in _going_back(history, after_zombies=True))
    begins = _begins(history)
    faults, changes = (_counted(each) for each in (history.faults, history.changes))
    joins = (_until_joined(history, each) for each in history.changes if each.name == "join")
    ends = {name: [_until_given(begins, each) for each in history.changes if each.name in name] for name in _ENDS}
    moves = [
        min(
            (after.at for epoch, after in begins[each.tenure.segment].items() if epoch > each.tenure.epoch), default=inf
        )
        - each.at
        for each in history.asked_back
    ]
    return (
        f"{len(history.published)} published, {count} read; {held[True]} commits held, {held[False]} were refused, "
        f"of {held[None]} nobody knows; rebalanced after a join: {spread(_known(joins))}; "
        + "; ".join(f"after {' or '.join(name)}: {spread(_known(found))}" for name, found in ends.items())
        + f"; a segment that moves stands still: {spread(_known(moves))}; {stale} positions told by brokers that "
        f"coordinate no more; {len(history.changes)} changes of members: {changes}; "
        f"{len(history.faults)} faults: {faults}"
    )


_ENDS = (("leave",), ("restart",), DEATHS)


def _counted(found: list[Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(Counter(each.name for each in found).items()))


def _known(found: "Iterator[float] | list[float]") -> list[float]:
    return [each for each in found if each < inf]


def _until_joined(history: StreamHistory, change: Change) -> float:
    """Until whoever has joined has a segment, if it gets one before anything else happens to members."""
    given_at = min((each.at for each in history.given if each.start == change.start), default=inf)
    others = (each.began_at for each in history.changes if each.start != change.start)
    return inf if any(change.began_at < at < given_at for at in others) else given_at - change.began_at


def _until_given(begins: dict[int, dict[int, Given]], change: Change) -> float:
    """Until all that a member had is with others, if it has had something."""
    longest = -inf
    for found in begins.values():
        for epoch, given in found.items():
            after = found.get(epoch + 1)
            if given.start == change.start and after is not None and given.at <= change.began_at <= after.at:
                longest = max(longest, after.at - change.began_at)
    return longest if longest > 0 else inf
