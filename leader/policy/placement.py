"""Which broker gets which segment: pure functions of the live brokers and their load (docs/design.md §8).

The load of brokers and the weights of segments have one unit: traffic, if a leader knows it
(`leader.traffic.broker_traffic`); else the number of segments, each of which weighs 1.
"""

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from filer.topic.topic_state import Segment, TopicState
from leader.membership.coordinator import BrokerInfo


def owned(states: Iterable[TopicState]) -> Counter[str]:
    """How many open segments each broker owns, including segments that a transition is about to open."""
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
    """Brokers (owner first, then followers) for new segments of these weights, in the order of the weights.

    The heaviest segment comes first. Each goes to the broker that then carries least, and its followers are in other
    zones. Draining brokers get nothing while there are others. `salt` (the topic's name) decides between equals: so
    many small topics are spread although brokers are chosen for each topic by itself. With fewer brokers than
    `replicas` there are fewer followers. `apart`: no broker gets two segments before each has one. Use it if the
    segments share traffic that is or will be too much for one broker, and the share of each is unknown. Empty if there
    is no broker.
    """
    candidates = [b for b in brokers if not b.draining] or list(brokers)
    if not candidates:
        return []
    taken = {b.id: float(carried.get(b.id, 0)) for b in candidates}
    queue = [(0, taken[b.id], _rank(salt, b.id), b.id, b) for b in candidates]
    heapq.heapify(queue)
    chosen: dict[int, tuple[str, ...]] = {}
    for index in sorted(range(len(weights)), key=lambda index: -weights[index]):
        given, _, rank, _, owner = queue[0]
        taken[owner.id] += weights[index]
        heapq.heapreplace(queue, (given + apart, taken[owner.id], rank, owner.id, owner))
        chosen[index] = (owner.id, *_followers(owner, candidates, taken, replicas - 1, salt))
    return [chosen[index] for index in range(len(weights))]


def _followers(
    owner: BrokerInfo,
    candidates: Sequence[BrokerInfo],
    taken: Mapping[str, float],
    count: int,
    salt: str,
    kept: Sequence[BrokerInfo] = (),
) -> tuple[str, ...]:
    """Choose followers: each zone once before any is used twice, and in a zone the broker that carries least first.

    `kept` are followers already.
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
    """Open segments that have lost a broker: the owner, or a follower, without which the owner cannot acknowledge."""
    return [s.id for s in state.open_segments if not gone.isdisjoint(s.brokers)]


def early_orphans(state: TopicState, gone: Set[str], refusing: Set[str], doubtful: Set[str]) -> list[int]:
    """Open segments that have lost a broker whose session goes on, and that can be sealed all the same.

    `refusing` brokers may live. A segment without followers is sealed at the end of its log, where the store stops its
    owner. With followers, one of its brokers must be left: the owner, or a follower, which refuses the owner first. If
    none is left, only the end of their sessions shows that they acknowledged nothing that the store lacks. `doubtful`
    brokers may turn out to refuse as well, and a transition that has begun keeps all of its segments waiting.
    """
    lost = gone | refusing | doubtful
    return [
        s.id
        for s in state.open_segments
        if not refusing.isdisjoint(s.brokers) and (len(s.brokers) == 1 or not set(s.brokers) <= lost)
    ]


def under_replicated(state: TopicState, brokers: Sequence[BrokerInfo]) -> list[int]:
    """Open segments with fewer replicas than the topic asks for, although the cluster has brokers for more."""
    if state.transition is not None or state.deleted:
        return []
    wanted = min(state.config.replicas, sum(not broker.draining for broker in brokers))
    return [s.id for s in state.open_segments if len(s.brokers) < wanted]


def maintainer(brokers: Sequence[BrokerInfo], *thing: object) -> str | None:
    """The broker that maintains a resource without an owner, such as a sealed segment (rendezvous hashing).

    When a broker comes or goes, only the resources that it gets or had change hands. None if there is no broker.
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
    """New brokers for each of these segments, by id. `owners` names the owners of some of them.

    A live owner that does not drain keeps its segment, and its followers go before other brokers: only missing brokers
    have to be chosen. If the owner is gone, a follower is no better than other brokers: everything of the segment is on
    the store by then. `weights` of segments by id; a segment that is not in it weighs 1.
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
