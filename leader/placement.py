"""Which broker gets which segment: pure functions of who lives and what they carry (DESIGN.md §8).

What brokers carry and what segments weigh is in any one unit: by load where a leader knows it (`leader.broker_loads`),
else the number of segments, each of which weighs 1.
"""

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from filer.topic_state import Segment, TopicState
from leader.coordinator import BrokerInfo


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
    carried: Mapping[str, float],
    weights: Sequence[float],
    *,
    replicas: int,
    salt: str,
    apart: bool = False,
) -> list[tuple[str, ...]]:
    """Brokers (owner first, then followers) for new segments of these weights, in their order.

    The heaviest are placed first, each with the broker that carries least by then, its followers in other zones.
    Draining brokers get nothing while there are others. `salt` (the topic's name) decides between equals, so that many
    small topics spread although each of them is placed by itself. With fewer brokers than `replicas` there are fewer
    followers. `apart`: no broker gets two before each has one, where what they share was too much for one, or soon will
    be, and nobody knows how much each will have of it. Empty where there is no broker at all.
    """
    candidates = [b for b in brokers if not b.draining] or list(brokers)
    if not candidates:
        return []
    taken = {b.id: float(carried.get(b.id, 0)) for b in candidates}
    queue = [(0, taken[b.id], _rank(salt, b.id), b.id, b) for b in candidates]
    heapq.heapify(queue)
    chosen: dict[int, tuple[str, ...]] = {}
    for place in sorted(range(len(weights)), key=lambda place: -weights[place]):
        given, _, rank, _, owner = queue[0]
        taken[owner.id] += weights[place]
        heapq.heapreplace(queue, (given + apart, taken[owner.id], rank, owner.id, owner))
        chosen[place] = (owner.id, *_followers(owner, candidates, taken, replicas - 1, salt))
    return [chosen[place] for place in range(len(weights))]


def _followers(
    owner: BrokerInfo,
    candidates: Sequence[BrokerInfo],
    taken: Mapping[str, float],
    count: int,
    salt: str,
    kept: Sequence[BrokerInfo] = (),
) -> tuple[str, ...]:
    """One zone after another is used before any is used twice; within that who carries least first.

    `kept` follow already.
    """
    zones = Counter(b.zone for b in (owner, *kept))
    left = [b for b in candidates if b.id != owner.id]
    followers: list[str] = []
    while left and len(followers) < count:
        best = min(left, key=lambda b: (zones[b.zone], taken.get(b.id, 0.0), _rank(salt + owner.id, b.id)))
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
    carried: Mapping[str, float],
    weights: Mapping[int, float],
    *,
    owners: Mapping[int, str] | None = None,
) -> dict[int, tuple[str, ...]]:
    """New brokers for each of these segments, by id; `owners` says who is to own some of them.

    A live owner that does not drain keeps its segment, and whoever followed it goes before others: then only what is
    missing has to be found. Where the owner is gone a follower is no better than others: all there is of the segment
    is on the store by then. `weights` of segments by id; one that is not in it weighs 1.
    """
    fit = {b.id: b for b in brokers if not b.draining}
    placed: dict[int, tuple[str, ...]] = {}
    homeless: list[Segment] = []
    for segment in segments:
        owner = (owners or {}).get(segment.id, segment.owner)
        if owner in fit:
            placed[segment.id] = (owner, *_kept_followers(owner, segment, state, fit, carried))
        else:
            homeless.append(segment)
    weighing = [weights.get(segment.id, 1.0) for segment in homeless]
    found = choose(brokers, carried, weighing, replicas=state.config.replicas, salt=state.topic)
    return placed | {segment.id: chosen for segment, chosen in zip(homeless, found, strict=False)}


def _kept_followers(
    owner: str, segment: Segment, state: TopicState, fit: Mapping[str, BrokerInfo], carried: Mapping[str, float]
) -> tuple[str, ...]:
    kept = tuple(b for b in segment.brokers if b in fit and b != owner)[: state.config.replicas - 1]
    others = [b for b in fit.values() if b.id not in kept]
    missing = state.config.replicas - 1 - len(kept)
    found = _followers(fit[owner], others, carried, missing, state.topic, [fit[b] for b in kept])
    return (*kept, *found)


def _rank(salt: str, broker: str) -> int:
    return zlib.crc32(f"{salt}/{broker}".encode())
