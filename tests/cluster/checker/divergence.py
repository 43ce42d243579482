"""Where two witnesses contradict each other, whatever the log says in the end.

An offset has one message for everybody, offsets grow with time, and a successor begins where its predecessors end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.cluster.checker.history import Reader, Request

Place = tuple[int, int]
Predecessors = Mapping[int, Sequence[int]]


def judge_witnesses(readers: Sequence[Reader], requests: Sequence[Request], predecessors: Predecessors) -> list[str]:
    """Complaints about the readers and producers of one topic, by what they saw of each other's messages."""
    return [
        *divergent(readers, requests),
        *backwards(requests),
        *(complaint for reader in readers for complaint in entered_early(reader, predecessors, _ends(readers))),
    ]


def divergent(readers: Iterable[Reader], requests: Iterable[Request]) -> Iterator[str]:
    """Complaints about offsets that were read, or acknowledged, with two values."""
    known: dict[Place, tuple[str, bytes | None]] = {}
    told: set[tuple[Place, bytes | None]] = set()
    for place, name, value in [*_acknowledged(requests), *_read(readers)]:
        first, known_value = known.setdefault(place, (name, value))
        if value != known_value and (place, value) not in told:
            told.add((place, value))
            yield f"divergent: {name} has {value!r} at {place}, where {first} has {known_value!r}"


def _acknowledged(requests: Iterable[Request]) -> Iterator[tuple[Place, str, bytes | None]]:
    """What producers were told of single messages: rows of a request that all fell into one segment."""
    for request in requests:
        if len(request.positions) == 1 and request.positions[0][2] == len(request.messages):
            segment, base, _ = request.positions[0]
            for row, sent in enumerate(request.messages):
                yield (segment, base + row), f"the answer to {request.producer}", sent.value


def _read(readers: Iterable[Reader]) -> Iterator[tuple[Place, str, bytes | None]]:
    for reader in readers:
        for message in reader.found:
            yield (message.segment, message.offset), reader.name, message.value


def backwards(requests: Iterable[Request]) -> Iterator[str]:
    """Complaints about requests that stand before others which were answered before they were sent."""
    ended: list[tuple[float, int, int, str]] = []
    begun: list[tuple[float, int, int, str]] = []
    for request in requests:
        for segment, base, count in request.positions:
            name = f"{request.producer} {request.messages[0]}"
            ended.append((request.acknowledgements[0].ended_seconds, segment, base + count, name))
            begun.append((request.attempts[0].started_seconds, segment, base, name))
    ended.sort()
    reached: dict[int, tuple[int, str]] = {}
    position = 0
    for started_seconds, segment, base, name in sorted(begun):
        while position < len(ended) and ended[position][0] < started_seconds:
            _, other, end, earlier = ended[position]
            reached[other] = max(reached.get(other, (0, "")), (end, earlier))
            position += 1
        end, earlier = reached.get(segment, (0, ""))
        if base < end:
            yield f"backwards: {name} is at {base} of segment {segment}, behind {earlier}, answered before it was sent"


def entered_early(reader: Reader, predecessors: Predecessors, ends: Mapping[int, int]) -> Iterator[str]:
    """Complaints about a reader that was given a successor's messages before its predecessors' last ones."""
    following: dict[int, int] = dict(reader.positions or {})
    snapshots: dict[int, dict[int, int]] = {0: dict(following)}
    wanted, seen = {visit.behind for visit in reader.visits}, 0
    for visit in reader.visits:
        following = dict(snapshots.get(visit.behind, following))
        for message in visit.found:
            if message.segment not in following:
                for each in predecessors.get(message.segment, ()):
                    read, end = following.get(each, 0), ends.get(each, 0)
                    if read < end and _is_owed(reader, each, read, end):
                        given = f"{reader.name} was given {message.segment}-{message.offset}"
                        yield f"entered early: {given} with segment {each} read to {read} of {end}"
            following[message.segment] = max(message.offset + 1, following.get(message.segment, 0))
            seen += 1
            if seen in wanted:
                snapshots.setdefault(seen, dict(following))


def _is_owed(reader: Reader, segment: int, start: int, stop: int) -> bool:
    """Whether these messages of a predecessor were the reader's to read.

    They were not if it was told that they cannot be given, or began behind them: segments that are newer than all it
    began with have higher ids, older ones were never its to read.
    """
    begun = reader.positions
    is_its_own = begun is None or segment in begun or segment > max(begun, default=-1)
    return is_its_own and not any(gap.covers(segment, start, stop) for gap in reader.told)


def _ends(readers: Iterable[Reader]) -> dict[int, int]:
    """Where each segment ends, as far as anybody has seen it."""
    ends: dict[int, int] = defaultdict(int)
    for reader in readers:
        for message in reader.found:
            ends[message.segment] = max(ends[message.segment], message.offset + 1)
    return ends
