"""The verdict on a stream group: a history that may be, and each way in which one may not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.cluster.group_storms.common_history import Fault, Published
from tests.cluster.group_storms.stream_history import (
    AskedBack,
    Change,
    Committed,
    Described,
    Given,
    Read,
    Start,
    StreamHistory,
    Tenure,
)
from tests.cluster.group_storms.stream_verdict import around, judge

A, B = Start("a", 1), Start("b", 2)
FIRST, SECOND, SUCCESSOR = Tenure(0, 1), Tenure(0, 2), Tenure(1, 1)


def committed(start: Start, tenure: Tenure, position: int, at: float, held: bool | None = True) -> Committed:
    return Committed(start, tenure, position, at, at + 0.1, held)


def good() -> StreamHistory:
    """Segment 0 moves from a to b, who goes on behind what a has committed. It is sealed, and a has the next one."""
    return StreamHistory(
        published=[Published("k", index, 0.1 * index) for index in range(5)],
        given=[Given(A, FIRST, 0, 1.0), Given(B, SECOND, 2, 4.0), Given(A, SUCCESSOR, 0, 7.0)],
        asked_back=[AskedBack(A, FIRST, 3.0)],
        read=[
            Read(A, FIRST, 0, ("k 0", "k 1"), 1.5),
            Read(A, FIRST, 2, ("k 2",), 2.5),
            Read(B, SECOND, 2, ("k 2", "k 3"), 5.0),
            Read(A, SUCCESSOR, 0, ("k 4",), 7.5),
        ],
        committed=[
            committed(A, FIRST, 2, 2.0),
            committed(A, FIRST, 3, 4.5, held=False),
            committed(B, SECOND, 4, 6.0),
            committed(A, FIRST, 2, 6.5),
            committed(A, SUCCESSOR, 1, 8.0, held=None),
        ],
        described=[Described({0: 2}, 2.5, 2.6), Described({0: 2}, 5.0, 6.6), Described({0: 4, 1: 1}, 9.0, 9.1)],
        changes=[Change("join", A, 0.5, 1.0), Change("join", B, 2.8, 3.2)],
    )


def test_what_may_be_is_clean() -> None:
    verdict = judge(good())
    assert verdict.complaints == []
    assert "rebalanced after a join: p50 1.20 s, max 1.20 s" in verdict.figures
    assert "a segment that moves stands still: p50 1.00 s, max 1.00 s" in verdict.figures


def of(history: StreamHistory, **more: Sequence[Any]) -> list[str]:
    """The complaints, if that had been seen as well."""
    for name, extra in more.items():
        getattr(history, name).extend(extra)
    return judge(history).complaints


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"published": [Published("k", 5, 9.0)]}, "'k 5' has reached no member"),
        ({"read": [Read(B, SECOND, 4, ("k 4",), 8.0)]}, "'k 4' is stored as ['0-4', '1-0']"),
        ({"given": [Given(B, FIRST, 2, 3.0)]}, "segment 0 under epoch 1 is with a start 1, and so is b start 2"),
        ({"read": [Read(B, SECOND, 5, ("k 5",), 8.0)]}, "segment 0 under epoch 2 is with b start 2 goes on at 5"),
        ({"read": [Read(B, SECOND, 4, ("k 7",), 8.0)]}, "segment 0 under epoch 2 is with b start 2 has 'k 7' behind"),
        (
            {"committed": [committed(A, FIRST, 3, 3.9)]},
            "position 3 of segment 0 was accepted under epoch 1, and epoch 2 begins at 2",
        ),
        (
            {"committed": [committed(A, FIRST, 3, 5.0)]},
            "segment 0 under epoch 1 is with a start 1 and has committed 3, after a later epoch was told",
        ),
        (
            {"committed": [committed(B, SECOND, 3, 4.5, held=False)]},
            "segment 0 under epoch 2 is with b start 2 was refused 3, and not 4 later",
        ),
        ({"described": [Described({0: 1}, 3.0, 3.1)]}, "the position of segment 0 was 2, and then 1"),
        ({"described": [Described({0: 3}, 7.0, 7.1)]}, "the position of segment 0 was 4, and then 3"),
        (
            {"given": [Given(B, Tenure(0, 3), 4, 8.0)]},
            "segment 0 under epoch 2 is with b start 2 has got it again under epoch 3",
        ),
        (
            {"given": [Given(B, Tenure(0, 3), 4, 20.0)], "asked_back": [AskedBack(B, SECOND, 19.0)]},
            "segment 0 under epoch 2 is with b start 2 was asked for it, and has got it again",
        ),
        (
            {"asked_back": [AskedBack(B, Tenure(9, 1), 8.0)]},
            "segment 9 under epoch 1 is with b start 2, which it is to let go and was never given",
        ),
        ({"wrong_answers": ["publish: no"]}, "publish: no"),
    ],
)
def test_what_may_not_be(more: dict[str, Sequence[Any]], says: str) -> None:
    assert any(complaint.startswith(says) for complaint in of(good(), **more))


def test_a_coordinator_that_takes_over_may_ask_back_what_it_has_told_nobody() -> None:
    """It gives a segment to whom it has heard, and then hears others. In calm times that may not be."""
    asked = [AskedBack(B, Tenure(9, 1), 8.0)]
    assert of(good(), asked_back=asked) and of(good(), asked_back=asked, faults=[Fault("kill-owner", 1.0, 2.0)])
    assert of(good(), asked_back=asked, faults=[Fault("kill-owner", 7.0, 7.5)]) == []


def test_a_message_comes_when_those_ahead_of_it_are_committed() -> None:
    history = good()
    history.committed[2] = replace(history.committed[2], sent_at=7.7)
    assert judge(history).complaints == [
        "segment 1 under epoch 1 is with a start 1 has 'k 4' before all ahead of it were committed"
    ]
    history.committed[2] = committed(B, SECOND, 4, 6.0, held=None)  # nobody knows: it may have held
    assert judge(history).complaints == []
    history.committed[2] = committed(B, SECOND, 3, 6.0)  # k 3 is not covered
    assert judge(history).complaints == [
        "segment 1 under epoch 1 is with a start 1 has 'k 4' before all ahead of it were committed"
    ]


def test_what_a_broker_says_that_was_paused_is_only_counted() -> None:
    history = good()
    history.described.append(Described({0: 1}, 3.0, 3.1))
    history.faults.append(Fault("kill-owner", 2.0, 3.0))
    assert len(judge(history).complaints) == 1
    history.faults.append(Fault("pause-owner", 2.0, 3.0))
    verdict = judge(history)
    assert verdict.complaints == [] and "1 positions told by brokers that coordinate no more" in verdict.figures


def test_a_segment_may_come_back_to_whoever_let_it_go_while_others_come_and_go() -> None:
    history = good()
    history.given.append(Given(B, Tenure(0, 3), 4, 20.0))
    history.asked_back.append(AskedBack(B, SECOND, 19.0))
    history.changes += [Change("join", Start("c", 3), 18.5, 18.6), Change("kill", Start("c", 3), 19.2, 19.2)]
    assert judge(history).complaints == []


def test_a_complaint_is_shown_with_all_that_was_seen() -> None:
    shown = around(good(), "segment 1 under epoch 1 is with a start 1")
    assert len([each for each in shown if "segment=1" in each]) == 3
    assert len(around(good(), "'1.2 3' has reached no member")) == 1 + 2
