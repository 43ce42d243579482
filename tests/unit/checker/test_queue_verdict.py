"""The verdict on a queue group: a history that may be, and each way in which one may not."""

from dataclasses import replace

import pytest

from tests.cluster.group_storms.common_history import Fault, Published
from tests.cluster.group_storms.queue_history import Decided, Delivered, QueueHistory, Unanswered
from tests.cluster.group_storms.queue_verdict import around, judge
from tests.cluster.group_storms.terms import Terms

LEASE_SECONDS = 2.0
TERMS = Terms()


def delivered(
    message: str, value: str, at: float, *, deliveries: int = 1, answer: int = 0, place: int = 0
) -> Delivered:
    return Delivered(message, value, deliveries, answer, place, at, at + 0.1, LEASE_SECONDS)


def acked(message: str, at: float, *, deliveries: int = 1, held: bool = True) -> Decided:
    return Decided(message, deliveries, "acks", at, at + 0.1, held)


def good() -> QueueHistory:
    """Two messages of a key in one answer, one of them delivered twice, and one that is dead."""
    return QueueHistory(
        published=[Published("k", 0, 0.0), Published("k", 1, 0.1, due_at=0.2), Published("k", 2, 0.2, is_poison=True)],
        delivered=[
            delivered("0-0", "k 0", 1.0),
            delivered("0-1", "k 1", 1.0, place=1),
            delivered("0-1", "k 1", 4.0, deliveries=2, answer=1),
            delivered("0-2", "k 2", 6.0, answer=2),
        ],
        decided=[
            acked("0-0", 1.5),
            acked("0-1", 3.9, held=False),
            acked("0-1", 4.5, deliveries=2),
            acked("0-1", 4.7, deliveries=2),
            Decided("0-2", 1, "dead", 6.5, 6.6, True),
        ],
    )


def complaints(history: QueueHistory, *dead: str, order: str = "key", terms: Terms = TERMS) -> list[str]:
    return judge(history, dead or ["k 2"], order=order, terms=terms).complaints


def test_what_may_be_is_clean() -> None:
    assert complaints(good()) == []


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ([Published("k", 3, 0.3)], "'k 3' was acked 0 times and has 0 dead letters"),
        ([acked("0-1", 9.0, deliveries=3)], "0-1 was acked by the deliveries [2, 3]"),
        ([delivered("0-0", "k 0", 9.0, deliveries=2, answer=9)], "0-0 was delivered again after its ack was answered"),
        ([delivered("7-0", "k 0", 1.2, answer=9)], "'k 0' is stored as ['0-0', '7-0']"),
        ([delivered("0-9", "100.3 0", 1.2, answer=9)], "'100.3 0' was delivered, and nobody has published it to this"),
        (
            [delivered("0-1", "k 1", 5.0, deliveries=2, answer=9)],
            "0-1 was delivered 3 times, and its",
        ),
        (
            [delivered("0-2", "k 2", 7.0, answer=9), delivered("0-2", "k 2", 6.2, answer=8)],
            "0-2 was with two consumers",
        ),
    ],
)
def test_what_may_not_be(extra: list[Published | Delivered | Decided], says: str) -> None:
    history = good()
    for each in extra:
        if isinstance(each, Published):
            history.published.append(each)
        elif isinstance(each, Delivered):
            history.delivered.append(each)
        else:
            history.decided.append(each)
    assert any(complaint.startswith(says) for complaint in complaints(history))


def test_a_message_that_came_before_it_was_due() -> None:
    history = good()
    history.published[1] = replace(history.published[1], due_at=1.5)
    assert complaints(history) == ["'k 1' was delivered 0.400 s before it was due"]


def test_messages_of_a_key_out_of_order() -> None:
    history = good()
    history.decided[2:4] = [acked("0-1", 7.0, deliveries=2)]
    assert complaints(history) == ["'k 2' came before 'k' 1 was done"]
    assert complaints(history, order="none") == []
    history = good()
    history.delivered[:2] = [delivered("0-0", "k 0", 1.0, place=1), delivered("0-1", "k 1", 1.0)]
    assert complaints(history) == ["'k 1' came before 'k' 0 was done", "'k 0' came behind 'k' 1 in one answer"]


def test_dead_letters_are_there_once_and_are_somebodys() -> None:
    assert complaints(good(), "k 2", "k 2") == ["'k 2' was acked 0 times and has 2 dead letters"]
    assert complaints(good(), "k 2", "k 0") == ["'k 0' was acked 1 times and has 1 dead letters"]
    assert "'x 0' has a dead letter, and nobody has published it" in complaints(good(), "k 2", "x 0")


def test_what_nobody_has_received_is_no_dead_letter() -> None:
    history = good()
    history.published.append(Published("k", 3, 0.3))
    assert complaints(history, "k 2", "k 3") == ["'k 3' has a dead letter, and nobody has received it"]
    history.faults.append(Fault("pause-owner", 5.0, 6.0))
    assert complaints(history, "k 2", "k 3") == []


def test_no_more_than_the_limit_are_with_consumers() -> None:
    assert complaints(good(), terms=Terms(max_in_flight=2)) == []
    (complaint,) = complaints(good(), terms=Terms(max_in_flight=1))
    assert complaint.startswith("2 messages were with consumers at 1.1")


def test_what_was_never_handed_out_waits_only_where_it_was_being_claimed() -> None:
    history = good()
    history.published.append(Published("j", 0, 0.3))
    long = Terms(lease_seconds=600.0)
    assert complaints(history, terms=long) == ["1 are withheld, and 0 were being claimed: ['j 0']"]
    history.faults.append(Fault("kill-all", 5.0, 6.0))
    history.unanswered.append(Unanswered(1, 5.4, 5.6))
    assert complaints(history, terms=long) == []


def test_what_was_given_back_waits_only_where_it_was_being_claimed() -> None:
    history = good()
    history.published.append(Published("j", 0, 0.3))
    history.delivered.append(delivered("1-0", "j 0", 5.0, answer=4))
    long = Terms(lease_seconds=600.0)
    assert complaints(history, terms=long) == ["'j 0' was acked 0 times and has 0 dead letters"], "a worker has it"
    history.decided.append(Decided("1-0", 1, "releases", 5.1, 5.2, True))
    assert complaints(history, terms=long) == ["1 are withheld, and 0 were being claimed: ['j 0']"]
    history.faults.append(Fault("kill-all", 5.5, 6.0))
    history.unanswered.append(Unanswered(1, 5.4, 5.9))
    assert complaints(history, terms=long) == []
    # Given back for the last time, it is a dead letter.
    (complaint,) = complaints(history, terms=Terms(lease_seconds=600.0, max_deliveries=1))
    assert complaint == "'j 0' was acked 0 times and has 0 dead letters"


def test_two_consumers_during_a_fault_are_only_counted() -> None:
    history = good()
    history.delivered.append(delivered("0-2", "k 2", 6.2, deliveries=2, answer=9))
    assert len(complaints(history)) == 1
    history.faults.append(Fault("split", 5.0, 6.0))
    assert len(complaints(history)) == 1
    history.faults.append(Fault("pause-owner", 5.0, 6.0))
    verdict = judge(history, ["k 2"], order="key", terms=TERMS)
    assert verdict.complaints == [] and "1 with two consumers during faults" in verdict.figures


def test_a_complaint_is_shown_with_all_that_was_seen() -> None:
    shown = around(good(), "0-1 was acked by the deliveries [2, 3]")
    assert len(shown) == 1 + 2 + 3 and all("0-1" in each for each in shown)
