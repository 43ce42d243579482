"""Check what readers got during a workload against the log as read at the end.

A reader goes on behind a marker, so per segment it must get one offset after the other; nothing it was given may be
missing or other in the end; and a broker that says "there is nothing more" must know of what was seen before.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.cluster.checker.history import GARBLED, REACHED, Found, Gap, Reader, Request, Visit
from tests.cluster.checker.log_verdict import is_told, wrong_order

Place = tuple[int, int]
Offsets = dict[int, int]
"""The next offset of each segment."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A broker's answer, to a reader that started at the earliest message, that there are no more messages."""

    reader: str
    url: str
    at_seconds: float
    following: Offsets


@dataclass(frozen=True, slots=True)
class Sighting:
    """An offset known from a time on, to a reader that got it or a producer whose answer had it."""

    at_seconds: float
    url: str
    segment: int
    offset: int


@dataclass(slots=True)
class Walk:
    """The result of following one reader's visits: complaints, and every "nothing more" that it was given."""

    complaints: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


def judge_readers(
    readers: Sequence[Reader],
    requests: Sequence[Request],
    log: Mapping[Place, Found],
    *,
    staleness_seconds: float,
) -> list[str]:
    """Complaints about the readers of one topic. `log` are its messages at the end."""
    walks = [walk(reader) for reader in readers]
    return [
        *(complaint for each in walks for complaint in each.complaints),
        *_not_in_the_log(readers, log),
        *(complaint for reader in readers for complaint in _wrong_order(reader, requests)),
        *(complaint for reader in readers for complaint in _not_seen(reader, requests)),
        *_back_in_time(walks, readers, requests, staleness_seconds),
    ]


def walk(reader: Reader) -> Walk:
    """Follow a reader from visit to visit: each must resume exactly after its marker."""
    result = Walk()
    wanted = {visit.behind for visit in reader.visits}
    following: Offsets = dict(reader.positions or {})
    snapshots: dict[int, Offsets] = {0: dict(following)}
    seen = 0
    for visit in reader.visits:
        if visit.behind not in snapshots:
            result.complaints.append(f"impossible: {reader.name} went on behind message {visit.behind} of {seen}")
            return result
        following = dict(snapshots[visit.behind])
        for message in visit.found:
            result.complaints.extend(_step(reader.name, visit, following, message))
            seen += 1
            if seen in wanted:
                snapshots.setdefault(seen, dict(following))
        if visit.end == GARBLED:
            result.complaints.append(f"garbled: {reader.name} got something from {visit.url} that does not parse")
        if visit.end == REACHED and reader.start == "earliest":
            result.claims.append(Claim(reader.name, visit.url, visit.started_seconds, dict(following)))
    return result


def _step(name: str, visit: Visit, following: Offsets, message: Found) -> Iterator[str]:
    expected = following.get(message.segment, 0)
    where = f"{name} at {visit.url}: segment {message.segment}"
    # What another visit was told excuses nothing: this one goes on behind a marker, which is before that gap.
    if message.offset > expected and not any(g.covers(message.segment, expected, message.offset) for g in visit.told):
        yield f"skipped: {where} goes on at {message.offset}, not {expected}"
    elif message.offset < expected:
        yield f"went back: {where} gave {message.offset}, not {expected}"
    following[message.segment] = max(expected, message.offset + 1)


def _not_in_the_log(readers: Iterable[Reader], log: Mapping[Place, Found]) -> Iterator[str]:
    for reader in readers:
        for message in dict.fromkeys(reader.found):
            position = (message.segment, message.offset)
            if position not in log:
                yield f"phantom: {reader.name} got {message.value!r} at {position}, where nothing is in the end"
            elif log[position] != message:
                final = log[position].value
                yield f"changed: {reader.name} got {message.value!r} at {position}, in the end it is {final!r}"


def _wrong_order(reader: Reader, requests: Sequence[Request]) -> Iterator[str]:
    first_seen = {(message.segment, message.offset): message for message in reversed(list(reader.found))}
    in_order = dict.fromkeys((message.segment, message.offset) for message in reader.found)
    for complaint in wrong_order(requests, (first_seen[position] for position in in_order)):
        yield f"{reader.name}: {complaint}"


def _not_seen(reader: Reader, requests: Sequence[Request]) -> Iterator[str]:
    """Acknowledged messages that a reader should have got: since it joined, or all if it read everything."""
    if not reader.finished:
        return
    if reader.joined_seconds is None:
        yield f"never served: no broker took {reader.name} in"
        return
    since = 0.0 if reader.start == "earliest" else reader.joined_seconds
    # A gap that it was told of earlier may have healed, and it has come past it since.
    seen, told = {message.value for message in reader.found}, _told_last(reader)
    for request in requests:
        if request.outcome == "acknowledged" and request.attempts[0].started_seconds >= since:
            if is_told(request, told):
                continue
            for sent in request.messages:
                if sent.value not in seen:
                    yield f"not seen: {sent} was acknowledged, {reader.name} read to the end without it"


def _told_last(reader: Reader) -> list[Gap]:
    """The gaps that its newest visit which got anywhere was told of."""
    return next((visit.told for visit in reversed(reader.visits) if visit.found or visit.told), [])


def _back_in_time(
    walks: Sequence[Walk], readers: Sequence[Reader], requests: Sequence[Request], staleness_seconds: float
) -> Iterator[str]:
    """Complaints about brokers that forget: own messages never, those of other brokers not after a short time."""
    claims = [claim for each in walks for claim in each.claims]
    given = list(_given(readers))
    known = [*given, *_told(requests)]
    for url in {claim.url for claim in claims}:
        there = [sighting for sighting in given if sighting.url == url]
        yield from _forgotten([claim for claim in claims if claim.url == url], there, 0.0)
    yield from _forgotten(claims, known, staleness_seconds)


def _forgotten(claims: Sequence[Claim], sightings: Iterable[Sighting], allowed_seconds: float) -> Iterator[str]:
    history = _furthest(sightings)
    for claim in claims:
        for segment, (times, furthest) in history.items():
            index = bisect_right(times, claim.at_seconds - allowed_seconds)
            end = claim.following.get(segment, 0)
            if index and end <= furthest[index - 1]:
                told = f"{claim.reader} was told by {claim.url} that segment {segment} ends at {end}"
                yield f"back in time: {told}, though {furthest[index - 1]} had been seen {allowed_seconds:g} s before"


def _furthest(sightings: Iterable[Sighting]) -> dict[int, tuple[list[float], list[int]]]:
    """For each segment, times and the furthest offset known since then."""
    history: dict[int, tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
    for sighting in sorted(sightings, key=lambda each: each.at_seconds):
        times, furthest = history[sighting.segment]
        if not furthest or sighting.offset > furthest[-1]:
            times.append(sighting.at_seconds)
            furthest.append(sighting.offset)
    return history


def _given(readers: Iterable[Reader]) -> Iterator[Sighting]:
    for reader in readers:
        for visit in reader.visits:
            for message in visit.found:
                yield Sighting(message.at_seconds, visit.url, message.segment, message.offset)


def _told(requests: Iterable[Request]) -> Iterator[Sighting]:
    for request in requests:
        for attempt in request.acknowledgements:
            for segment, base, count in attempt.positions:
                yield Sighting(attempt.ended_seconds, attempt.url, segment, base + count - 1)
