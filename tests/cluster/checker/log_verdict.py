"""Check the messages read from a topic's start to its end against the answers that producers got."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tests.cluster.checker.history import Found, Gap, History, Outcome, Request, Sent


def judge_log(history: History, topic: str, found: Sequence[Found], told: Sequence[Gap] = ()) -> list[str]:
    """Complaints about the messages of one topic, `found` in reading order; empty if nothing is wrong.

    What lies in a gap that the reader was `told` of is neither lost nor skipped.
    """
    requests = [request for request in history.requests if request.topic == topic]
    return [
        *_wrong_messages(requests, found, told),
        *wrong_order(requests, found),
        *_wrong_offsets(found, told),
        *_wrong_answers(requests),
        *_wrong_positions(requests, found),
    ]


def _wrong_messages(requests: Sequence[Request], found: Sequence[Found], told: Sequence[Gap]) -> Iterator[str]:
    counts = Counter(message.value for message in found)
    for request in requests:
        if request.outcome == "acknowledged" and not is_told(request, told):
            for sent in request.messages:
                if not counts[sent.value]:
                    yield f"lost: {sent} was acknowledged and is not there"
    for sent in _sent(requests, "failed"):
        if counts[sent.value]:
            yield f"not refused: {sent} was answered as certainly not stored and is there"
    known: dict[bytes | None, Sent] = {sent.value: sent for request in requests for sent in request.messages}
    for value, count in counts.items():
        if value not in known:
            yield f"never sent: {value!r}"
        elif count > 1:
            yield f"doubled: {known[value]} is there {count} times"
    for message in found:
        if message.value in known and message.key != known[message.value].key.encode():
            yield f"wrong key: {known[message.value]} has the key {message.key!r}"


def is_told(request: Request, told: Sequence[Gap]) -> bool:
    """Whether one of these gaps reaches into the positions of a request."""
    return any(
        gap.segment == segment and gap.offset < base + count and (gap.next_offset is None or base < gap.next_offset)
        for gap in told
        for segment, base, count in request.positions
    )


def wrong_order(requests: Sequence[Request], found: Iterable[Found]) -> Iterator[str]:
    """Complaints about messages of a key in another order than they were sent.

    Only of acknowledged messages: one whose outcome was unknown may land after those sent later.
    """
    acknowledged: dict[bytes | None, Sent] = {sent.value: sent for sent in _sent(requests, "acknowledged")}
    last: dict[str, int] = {}
    for sent in (acknowledged[message.value] for message in found if message.value in acknowledged):
        if sent.number < last.get(sent.key, -1):
            yield f"out of order: {sent} after number {last[sent.key]} of its key"
        last[sent.key] = sent.number


def _wrong_offsets(found: Sequence[Found], told: Sequence[Gap]) -> Iterator[str]:
    following: dict[int, int] = {}
    for message in found:
        expected = following.get(message.segment, 0)
        if message.offset > expected and not any(g.covers(message.segment, expected, message.offset) for g in told):
            yield f"gap: segment {message.segment} goes on at {message.offset}, not {expected}"
        elif message.offset < expected:
            yield f"went back: segment {message.segment} gave {message.offset} after {expected - 1}"
        following[message.segment] = max(expected, message.offset + 1)


def _wrong_answers(requests: Sequence[Request]) -> Iterator[str]:
    """Complaints about repeated requests whose answer differs from the first one."""
    for request in requests:
        named = f"{request.producer} {request.sequence} of {len(request.messages)} messages"
        acknowledgements = request.acknowledgements
        for attempt in acknowledgements:
            if sum(count for _, _, count in attempt.positions) != len(request.messages):
                yield f"miscounted: {named} was told {attempt.positions}"
            if sorted(attempt.positions) != sorted(acknowledgements[0].positions):
                yield f"answered otherwise: {named} was told {request.positions}, then {attempt.positions}"
        if acknowledgements:
            later = request.attempts[request.attempts.index(acknowledgements[0]) :]
            yield from (f"repeat refused: {named}: {attempt.detail}" for attempt in later if attempt.final)


def _wrong_positions(requests: Sequence[Request], found: Sequence[Found]) -> Iterator[str]:
    """Complaints about acknowledged messages at other positions than their own request was given."""
    positions_found = {message.value: (message.segment, message.offset) for message in found}
    taken: set[tuple[int, int]] = set()
    for request in requests:
        told = {(s, o) for s, base, count in request.positions for o in range(base, base + count)}
        if taken & told:
            yield f"used twice: positions {sorted(taken & told)} were given to two requests"
        taken |= told
        if request.outcome != "acknowledged":
            continue
        for sent in request.messages:
            position = positions_found.get(sent.value)
            if position is not None and position not in told:
                yield f"moved: {sent} stands at {position}, its request was told {request.positions}"
        yield from _shuffled(request, positions_found)


def _shuffled(request: Request, positions_found: dict[bytes | None, tuple[int, int]]) -> Iterator[str]:
    """Complaints about rows of a segment that are not in the order of their request, whatever their keys."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for sent in request.messages:
        if sent.value in positions_found:
            segment, offset = positions_found[sent.value]
            offsets[segment].append(offset)
    for segment, row_offsets in offsets.items():
        if row_offsets != sorted(row_offsets):
            yield f"shuffled: {request.producer}'s rows stand at {row_offsets} of segment {segment}"


def _sent(requests: Sequence[Request], outcome: Outcome) -> Iterator[Sent]:
    return (sent for request in requests if request.outcome == outcome for sent in request.messages)
