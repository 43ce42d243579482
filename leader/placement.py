"""Which broker gets which segment: pure functions of who lives and who owns what (DESIGN.md §8)."""

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from filer.topic_state import Segment, TopicState
from leader.coordinator import BrokerInfo

MOST_MOVES = 64


def owned(states: Iterable[TopicState]) -> Counter[str]:
    """How many open segments each broker owns, those that a transition is about to open included."""
    counts: Counter[str] = Counter()
    for state in states:
        leaving = state.transition.seal if state.transition else ()
        opening = state.transition.open if state.transition else ()
        counts.update(s.owner for s in state.open_segments if s.id not in leaving)
        counts.update(s.owner for s in opening)
    return counts


def choose(
    brokers: Sequence[BrokerInfo],
    loads: Mapping[str, int],
    *,
    count: int,
    replicas: int,
    salt: str,
    apart: bool = False,
) -> list[tuple[str, ...]]:
    """Brokers (owner first, then followers) for `count` new segments: the least loaded, followers in other zones.

    `loads` are owned segments. Draining brokers get nothing while there are others. `salt` (the topic's name) decides
    between equals, so that many small topics spread although each of them is placed by itself. With fewer brokers than
    `replicas` there are fewer followers. `apart`: no broker gets two before each has one, since what they share was too
    much for one. Empty where there is no broker at all.
    """
    candidates = [b for b in brokers if not b.draining] or list(brokers)
    taken = Counter({b.id: loads.get(b.id, 0) for b in candidates})
    given: Counter[str] = Counter()
    chosen: list[tuple[str, ...]] = []
    for _ in range(count if candidates else 0):
        owner = min(candidates, key=lambda b: (given[b.id] if apart else 0, taken[b.id], _rank(salt, b.id)))
        taken[owner.id] += 1
        given[owner.id] += 1
        chosen.append((owner.id, *_followers(owner, candidates, taken, replicas - 1, salt)))
    return chosen


def _followers(
    owner: BrokerInfo,
    candidates: Sequence[BrokerInfo],
    taken: Mapping[str, int],
    count: int,
    salt: str,
    kept: Sequence[BrokerInfo] = (),
) -> tuple[str, ...]:
    """One zone after another is used before any is used twice; within that the least loaded first.

    `kept` follow already.
    """
    zones = Counter(b.zone for b in (owner, *kept))
    left = [b for b in candidates if b.id != owner.id]
    followers: list[str] = []
    while left and len(followers) < count:
        best = min(left, key=lambda b: (zones[b.zone], taken[b.id], _rank(salt + owner.id, b.id)))
        left.remove(best)
        zones[best.zone] += 1
        followers.append(best.id)
    return tuple(followers)


def orphans(state: TopicState, gone: set[str] | frozenset[str]) -> list[int]:
    """Open segments that have lost a broker: their owner, or a follower they cannot acknowledge without."""
    return [s.id for s in state.open_segments if not gone.isdisjoint(s.brokers)]


def thin(state: TopicState, brokers: Sequence[BrokerInfo]) -> list[int]:
    """Open segments with fewer replicas than the topic asks for and the cluster could give."""
    if state.transition is not None or state.deleted:
        return []
    wanted = min(state.config.replicas, sum(not broker.draining for broker in brokers))
    return [s.id for s in state.open_segments if len(s.brokers) < wanted]


def moves(states: Sequence[TopicState], brokers: Sequence[BrokerInfo]) -> dict[str, dict[int, str]]:
    """Segments to be moved and their new owners, by topic, so that no broker owns two more than another.

    As few as will do, and at most `MOST_MOVES` at once. Topics with a transition under way are left alone: what it
    opens is counted, and the next round looks again.
    """
    fit = [b for b in brokers if not b.draining]
    counts = owned(states)
    loads = {b.id: counts[b.id] for b in fit}
    movable = _movable(states)
    plan: dict[str, dict[int, str]] = {}
    for _ in range(MOST_MOVES):
        if len(loads) < 2:
            break
        fullest, emptiest = max(loads, key=lambda i: (loads[i], i)), min(loads, key=lambda i: (loads[i], i))
        if loads[fullest] - loads[emptiest] < 2 or not movable.get(fullest):
            break
        topic, segment = movable[fullest].pop()
        plan.setdefault(topic, {})[segment.id] = emptiest
        loads[fullest] -= 1
        loads[emptiest] += 1
    return plan


def _movable(states: Sequence[TopicState]) -> dict[str, list[tuple[str, Segment]]]:
    """Open segments of each broker in topics that have no transition under way, the youngest last."""
    movable: dict[str, list[tuple[str, Segment]]] = {}
    for state in states:
        if state.transition is None and not state.deleted:
            for segment in state.open_segments:
                movable.setdefault(segment.owner, []).append((state.topic, segment))
    for segments in movable.values():
        segments.sort(key=lambda entry: entry[1].opened_us)
    return movable


def keeper(brokers: Sequence[BrokerInfo], *thing: object) -> str | None:
    """The broker that looks after something which nobody owns, such as a sealed segment (rendezvous hashing).

    When brokers come and go, only what was theirs changes hands. None where there is no broker.
    """
    name = "/".join(map(str, thing))
    return max((b.id for b in brokers), key=lambda i: (_rank(name, i), i), default=None)


def replacements(
    state: TopicState,
    segments: Iterable[Segment],
    brokers: Sequence[BrokerInfo],
    loads: Mapping[str, int],
    *,
    owners: Mapping[int, str] | None = None,
) -> dict[int, tuple[str, ...]]:
    """New brokers for each of these segments, by id; `owners` says who is to own some of them.

    A live owner that does not drain keeps its segment, and whoever followed it goes before others: then only what is
    missing has to be found. Where the owner is gone a follower is no better than others: all there is of the segment
    is on the store by then.
    """
    fit = {b.id: b for b in brokers if not b.draining}
    taken = Counter(dict(loads))
    placed: dict[int, tuple[str, ...]] = {}
    for segment in segments:
        owner = (owners or {}).get(segment.id, segment.owner)
        if owner in fit:
            placed[segment.id] = (owner, *_kept_followers(owner, segment, state, fit, taken))
        else:
            for chosen in choose(brokers, taken, count=1, replicas=state.config.replicas, salt=state.topic):
                placed[segment.id] = chosen
                taken[chosen[0]] += 1
    return placed


def _kept_followers(
    owner: str, segment: Segment, state: TopicState, fit: Mapping[str, BrokerInfo], taken: Mapping[str, int]
) -> tuple[str, ...]:
    kept = tuple(b for b in segment.brokers if b in fit and b != owner)[: state.config.replicas - 1]
    others = [b for b in fit.values() if b.id not in kept]
    missing = state.config.replicas - 1 - len(kept)
    found = _followers(fit[owner], others, taken, missing, state.topic, [fit[b] for b in kept])
    return (*kept, *found)


def _rank(salt: str, broker: str) -> int:
    return zlib.crc32(f"{salt}/{broker}".encode())
