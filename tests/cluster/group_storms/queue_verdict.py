"""Whether what a queue group's workers have seen may be (docs/consuming.md): pure functions of a history."""

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence

from tests.cluster.group_storms.queue_history import Decided, Delivered, QueueHistory
from tests.cluster.group_storms.terms import Terms
from tests.cluster.group_storms.verdict import Verdict

LATE_SECONDS = 1.0
"""A delay is kept to within a second."""
EARLY_SECONDS = 0.01
KILLED_SECONDS = 0.5
"""All brokers are dead so long after a fault has begun."""
HAND_OVERS = ("split", "merge", "rolling-restart")
"""The coordinator that ends writes its leases down for the next one: they go on."""


def judge(history: QueueHistory, dead_values: Sequence[str], *, order: str, terms: Terms) -> Verdict:
    """The verdict. `dead_values` are those of the dead-letter topic."""
    complaints = [
        *history.wrong_answers,
        *_ends(history, dead_values, terms),
        *(_withheld(history, dead_values, order=order, terms=terms) if terms.outlasts else ()),
        *(_over_limit(history, terms) if _kills_all(history) else ()),
        *(_never_received(history, dead_values) if _kills_all(history) else ()),
        *_strangers(history),
        *_two_acks(history.decided),
        *_forgotten_acks(history),
        *_counts(history.delivered),
        *_early(history),
        *_overlaps(history, during_faults=False),
        *(_out_of_order(history, set(dead_values)) if order == "key" else ()),
    ]
    return Verdict(complaints, _figures(history, dead_values))


def _kills_all(history: QueueHistory) -> bool:
    """Whether no coordinator has outlived the brokers that pass its answers on, or lives on as a zombie."""
    return {fault.name for fault in history.faults} <= {"kill-all"}


def _withheld(history: QueueHistory, dead_values: Sequence[str], *, order: str, terms: Terms) -> Iterator[str]:
    """A message that no worker has waits for no lease, unless a claim was to get it as all brokers were killed.

    In the order of keys, all messages behind such a one wait with it.
    """
    dead = set(dead_values)
    left = [each for each in history.with_nobody(terms.max_deliveries) if each.value not in dead]
    count = len({each.key for each in left}) if order == "key" else len(left)
    under_way = sum(
        claim.most
        for claim in history.unanswered
        if any(
            claim.asked_at <= fault.began_at + KILLED_SECONDS <= claim.ended_at + 2 * KILLED_SECONDS
            for fault in history.faults
        )
    )
    if count > under_way:
        yield f"{count} are withheld, and {under_way} were being claimed: {[each.value for each in left[:10]]}"


def _never_received(history: QueueHistory, dead_values: Sequence[str]) -> Iterator[str]:
    """The death of brokers makes no dead letters."""
    received = {each.value for each in history.delivered}
    for value in dead_values:
        if value not in received:
            yield f"{value!r} has a dead letter, and nobody has received it"


def _over_limit(history: QueueHistory, terms: Terms) -> Iterator[str]:
    """No more messages are with consumers for certain than the limit."""
    ended: dict[tuple[str, int], float] = {}
    for decision in history.decided:
        place = (decision.message, decision.deliveries)
        ended[place] = min(decision.sent_at, ended.get(place, decision.sent_at))
    changes: list[tuple[float, int]] = []
    for each in history.delivered:
        until = min(each.asked_at + each.lease_seconds, ended.get((each.message, each.deliveries), float("inf")))
        if each.received_at < until:
            changes += [(each.received_at, 1), (until, -1)]
    count = 0
    for at, change in sorted(changes):
        count += change
        if count > terms.max_in_flight:
            yield f"{count} messages were with consumers at {at:.3f}"
            return


def _ends(history: QueueHistory, dead_values: Sequence[str], terms: Terms) -> Iterator[str]:
    """Every message is acked, or dead with its dead letter, and there once."""
    ids: dict[str, set[str]] = defaultdict(set)
    for each in history.delivered:
        ids[each.value].add(each.message)
    acked = {each.message for each in history.decided if each.verb == "acks" and each.held}
    letters = Counter(dead_values)
    withheld = {each.value for each in history.with_nobody(terms.max_deliveries)} if terms.outlasts else set()
    for published in history.published:
        found = ids.get(published.value, set())
        if len(found) > 1:
            yield f"{published.value!r} is stored as {sorted(found)}"
        is_acked = bool(found & acked)
        # `_withheld` judges those.
        fewest = 0 if published.value in withheld else 1
        if not fewest <= letters[published.value] + is_acked <= 1:
            yield f"{published.value!r} was acked {is_acked:d} times and has {letters[published.value]} dead letters"
    for value in letters.keys() - {each.value for each in history.published}:
        yield f"{value!r} has a dead letter, and nobody has published it"


def _strangers(history: QueueHistory) -> Iterator[str]:
    """A group of a member of a topic group gets no messages of others."""
    published = {each.value for each in history.published}
    for value in {each.value for each in history.delivered} - published:
        yield f"{value!r} was delivered, and nobody has published it to this topic"


def _two_acks(decided: Sequence[Decided]) -> Iterator[str]:
    accepted: dict[str, set[int]] = defaultdict(set)
    for each in decided:
        if each.verb == "acks" and each.held:
            accepted[each.message].add(each.deliveries)
    for message, deliveries in accepted.items():
        if len(deliveries) > 1:
            yield f"{message} was acked by the deliveries {sorted(deliveries)}"


def _forgotten_acks(history: QueueHistory) -> Iterator[str]:
    done_at: dict[str, float] = {}
    for each in history.decided:
        if each.verb == "acks" and each.held:
            done_at[each.message] = min(each.answered_at, done_at.get(each.message, each.answered_at))
    for delivered in history.delivered:
        if delivered.asked_at > done_at.get(delivered.message, float("inf")):
            yield f"{delivered.message} was delivered again after its ack was answered"


def _counts(delivered: Sequence[Delivered]) -> Iterator[str]:
    """What a consumer is told of deliveries is at least how often the message was delivered."""
    times = Counter[str]()
    told: dict[str, int] = {}
    for each in delivered:
        times[each.message] += 1
        told[each.message] = max(told.get(each.message, 0), each.deliveries)
    for message, count in times.items():
        if told[message] < count:
            yield f"{message} was delivered {count} times, and its consumers were told of {told[message]}"


def _early(history: QueueHistory) -> Iterator[str]:
    due = {each.value: each.due_at for each in history.published if each.due_at is not None}
    for each in history.delivered:
        due_at = due.get(each.value)
        if due_at is not None and each.received_at < due_at - EARLY_SECONDS:
            yield f"{each.value!r} was delivered {due_at - each.received_at:.3f} s before it was due"


def _overlaps(history: QueueHistory, *, during_faults: bool) -> Iterator[str]:
    """Messages that two consumers had while the leases of both ran for certain.

    A lease begins between the request for it and its answer. A coordinator that was paused, or is dead, may not know
    that there is another one: what overlaps then is only counted. One that hands over knows.
    """
    ended: dict[tuple[str, int], float] = {}
    for decision in history.decided:
        place = (decision.message, decision.deliveries)
        ended[place] = min(decision.sent_at, ended.get(place, decision.sent_at))
    before: dict[str, Delivered] = {}
    for each in sorted(history.delivered, key=lambda each: each.received_at):
        first = before.get(each.message)
        before[each.message] = each
        if first is None or (first.deliveries == each.deliveries and first.answer == each.answer):
            continue
        until = min(first.asked_at + first.lease_seconds, ended.get((first.message, first.deliveries), float("inf")))
        if each.received_at < until:
            struck = any(
                fault.began_at - first.lease_seconds <= each.received_at <= fault.ended_at + 2 * first.lease_seconds
                for fault in history.faults
                if fault.name not in HAND_OVERS
            )
            if struck == during_faults:
                yield f"{each.message} was with two consumers for {until - each.received_at:.3f} s"


def _out_of_order(history: QueueHistory, dead_values: Container[str]) -> Iterator[str]:
    """A message of a key comes only when those ahead of it are done, or come ahead of it in the same answer.

    It is done no earlier than somebody has sent the ack of it, or has given it up. One that was delivered too often is
    done no earlier than somebody has released it, or its lease was over.
    """
    done_from: dict[str, float] = {}
    dead = {each.message for each in history.delivered if each.value in dead_values}
    ends = [(each.message, each.sent_at) for each in history.decided if each.verb == "releases"]
    ends += [(each.message, each.asked_at + each.lease_seconds) for each in history.delivered]
    for message, at in ends:
        if message in dead:
            done_from[message] = min(at, done_from.get(message, at))
    for decision in history.decided:
        if decision.verb in ("acks", "dead") and decision.held:
            done_from[decision.message] = min(decision.sent_at, done_from.get(decision.message, decision.sent_at))
    message_of = {each.value: each.message for each in history.delivered}
    ahead: dict[tuple[int, str], int] = {}
    for each in sorted(history.delivered, key=lambda each: (each.received_at, each.answer, each.place)):
        place = (each.answer, each.key)
        last = ahead.get(place)
        ahead[place] = each.index
        if last is not None:
            if last >= each.index:
                yield f"{each.value!r} came behind {each.key!r} {last} in one answer"
            first = last + 1
        else:
            first = 0
        for index in range(first, each.index):
            message = message_of.get(f"{each.key} {index}")
            if message is None or done_from.get(message, float("inf")) > each.received_at:
                yield f"{each.value!r} came before {each.key!r} {index} was done"
                break


def around(history: QueueHistory, complaint: str) -> list[str]:
    """Everything about the messages and the keys that a complaint names, in the order of time."""
    named = set(re.findall(r"\b\d+-\d+\b", complaint)) | set(re.findall(r"'(\d+\.\d+)", complaint))
    messages = {each.message for each in history.delivered if each.key in named or each.message in named}
    events: list[tuple[float, str]] = [(each.began_at, str(each)) for each in history.faults]
    events += [(each.received_at, str(each)) for each in history.delivered if each.message in messages]
    events += [(each.sent_at, str(each)) for each in history.decided if each.message in messages]
    return [complaint, *(f"{at:.3f} {event}" for at, event in sorted(events))]


def _figures(history: QueueHistory, dead_values: Sequence[str]) -> str:
    answered = {each.value: each.due_at or each.answered_at for each in history.published}
    first: dict[str, float] = {}
    for each in history.delivered:
        first[each.value] = min(each.received_at, first.get(each.value, each.received_at))
    waits = sorted(first[value] - at for value, at in answered.items() if value in first) or [0.0]
    late = [
        first[each.value] - each.due_at
        for each in history.published
        if each.due_at is not None and each.value in first and not _is_struck(history, each.due_at)
    ]
    overlaps = len(list(_overlaps(history, during_faults=True)))
    kinds = Counter(each.name for each in history.faults)
    return (
        f"{len(history.published)} published, {len(history.delivered)} deliveries, {len(dead_values)} dead letters; "
        f"{history.scattered} claims of scattered ranges; "
        f"first delivered after {waits[len(waits) // 2]:.3f} s (median), {waits[-1]:.1f} s (longest); "
        f"delays kept to {max(late, default=0.0):.2f} s away from faults; {overlaps} with two consumers during faults; "
        f"{len(history.faults)} faults: {', '.join(f'{name} {count}' for name, count in sorted(kinds.items()))}"
    )


def _is_struck(history: QueueHistory, at: float) -> bool:
    return any(fault.began_at - 1 <= at <= fault.ended_at + 10 for fault in history.faults)
