"""The figures of a proof: each fault has its line, and what is wrong is not hidden by what is not."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cluster.checker.history import Attempt, Fault, Gap, History, Reader, Request, Sent, Visit
from tests.cluster.checker.tally import Tally
from tests.cluster.faults.object_trials import Outcome, Plan
from tests.cluster.faults.proof_report import (
    BEGIN,
    END,
    FaultFigures,
    Proof,
    RoundFigures,
    by_fault,
    fault_table,
    figures,
    round_table,
    write_report,
)
from tests.support.store.object_faults import Damage

CLEAN = RoundFigures(
    1,
    "directory",
    11,
    [Fault("kill", 1.0, 2.0)],
    Tally(acknowledged=10, told=1),
    {"kill": FaultFigures(1, acknowledged=7)},
    [],
    ended=True,
)
BAD = RoundFigures(
    2,
    "s3",
    12,
    [Fault("kill", 1.0, 2.0), Fault("flip-seal", 3.0, 4.0)],
    Tally(acknowledged=5, lost=2, stopped=1, told=3),
    {"kill": FaultFigures(1, acknowledged=1), "flip-seal": FaultFigures(1, acknowledged=4, met=1, told=3)},
    ["t: lost: one", "t: lost: two", "stopped: NoProgress:\nnone"],
    ended=True,
)


def test_a_line_for_each_fault_and_one_for_all() -> None:
    assert fault_table([CLEAN, BAD]).splitlines()[2:] == [
        "| flip-seal | 0 | 1 | 1 | 3 | 4 | 2 | 0 | 0 | 1 |",
        "| kill | 1 | 1 |  |  | 8 | 2 | 0 | 0 | 1 |",
        "| **all** | 1 | 2 | 1 | 3 | 12 | 2 | 0 | 0 | 1 |",
    ]


def test_a_line_for_each_round_with_its_seed_and_each_check() -> None:
    head, _, *lines = round_table([CLEAN, BAD]).splitlines()
    assert head == (
        "| round | store | seed | faults | acknowledged | told | lost | doubled | reordered | divergent | skipped | "
        "answers | alarms | stopped | wrong | verdict |"
    )
    assert lines == [
        "| 1 | directory | 11 | 1 | 10 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | clean |",
        "| 2 | s3 | 12 | 2 | 5 | 3 | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 1 | 0 | **not clean** |",
        "| **all** |  |  | 3 | 15 | 4 | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 1 | 0 | **not clean** |",
    ]


def outcome(*complaints: str) -> Outcome:
    plan = Plan(0, "1 0", "seal", "flip", True, False, "export")
    return Outcome(plan, Damage("seal", "flip", "k", b"a", b"b"), 3, 1, False, list(complaints))


def proof(*rounds: RoundFigures, trial: Outcome, ended: str = "") -> Proof:
    return Proof(7, "abc", 120.0, list(rounds), {"directory": [trial]}, ended)


NOW = datetime(2026, 11, 23, tzinfo=UTC)


def test_the_whole_page() -> None:
    text = figures(proof(CLEAN, trial=outcome()), NOW)
    assert text.startswith(
        "2026-11-23, commit `abc`, seed 7, 2 minutes: 1 rounds with 1 faults and 10 acknowledged mes"
    )
    assert text.splitlines()[0].endswith("Nothing was wrong.")
    assert "| seal | flip | 1 | 3 | 1 | 0 | 0 |" in text
    assert "What was wrong" not in text


@pytest.mark.parametrize("one", [proof(BAD, trial=outcome()), proof(CLEAN, trial=outcome("missing: all"))])
def test_what_is_wrong_anywhere_is_said_first(one: Proof) -> None:
    assert not one.clean
    assert "**Not clean.**" in figures(one, NOW).splitlines()[0]


def test_complaints_are_shown_in_one_line_each() -> None:
    text = figures(proof(BAD, trial=outcome("missing: all")), NOW)
    assert "What was wrong (4 complaints, the first 4):" in text
    assert "- `round 2: stopped: NoProgress: none`" in text.splitlines()


def test_a_run_that_was_interrupted_says_so_and_shows_what_it_has() -> None:
    cut = RoundFigures(2, "s3", 12, [Fault("kill", 1.0)], Tally(acknowledged=3), {}, [], ended=False)
    text = figures(proof(CLEAN, cut, trial=outcome(), ended="interrupted"), NOW)
    assert "It did not run to its end: interrupted." in text.splitlines()[0]
    assert "| 2 | s3 | 12 | 1 | 3 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | interrupted |" in text


def test_only_what_is_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n{BEGIN}\nthe figures of old\n{END}\nafter\n")
    for _ in range(2):
        write_report(page, proof(CLEAN, trial=outcome()))
        text = page.read_text()
        assert text.startswith(f"# Before\n{BEGIN}\n") and text.endswith(f"{END}\nafter\n")
        assert "the figures of old" not in text and text.count("seed 7") == 1
    page.write_text("# No marks")
    with pytest.raises(ValueError, match="has no"):
        write_report(page, proof(CLEAN, trial=outcome()))


def request(at_seconds: float, number: int = 0, detail: str = "") -> Request:
    attempt = Attempt("b", at_seconds, at_seconds, "failed" if detail else "acknowledged", ((0, number, 1),))
    return Request("p", "t", (Sent("k", number),), [Attempt(*[*_fields(attempt)[:-1], detail])])


def _fields(attempt: Attempt) -> list[object]:
    return [getattr(attempt, name) for name in Attempt.__slots__]


def test_what_happened_counts_for_the_fault_that_went_before() -> None:
    requests = [request(at, n) for n, at in enumerate((0.5, 1.5, 2.5, 9.0))]
    visits = [Visit("b", 0, 2.1, 2.2, told=[Gap("k", 0, 0, 1)])]
    faults = [Fault("kill", 1.0, 1.2), Fault("flip-seal", 2.0, 3.0, key="k"), Fault("kill", 8.0, 8.1)]
    history = History(requests=requests, readers=[Reader("r", "t", "browse", visits=visits)], faults=faults)
    assert by_fault(history) == {
        "kill": FaultFigures(2, acknowledged=2),
        "flip-seal": FaultFigures(1, acknowledged=1, met=1, told=1),
    }


@pytest.mark.parametrize(
    ("fault", "told", "detail", "met"),
    [
        (Fault("flip-seal", 1.0, 2.0, key="k"), Gap("k", 0, 0), "", 1),
        (Fault("flip-seal", 1.0, 2.0, key="k"), Gap("another", 0, 0), "", 0),
        (Fault("flip-seal", 5.0, 6.0, key="k"), Gap("k", 0, 0), "", 0),
        (Fault("flip-seal", 1.0, 2.0, key="k"), None, "it names k", 1),
        (Fault("flip-seal", 1.0, 2.0, key="k", logged=1), None, "", 1),
        (Fault("flip-seal", 1.0, 2.0, key="k"), None, "", 0),
    ],
)
def test_a_damage_is_met_where_somebody_is_told_of_that_very_object(
    fault: Fault, told: Gap | None, detail: str, met: int
) -> None:
    visits = [Visit("b", 0, 1.5, 1.6, told=[] if told is None else [told])]
    history = History(
        requests=[request(1.7, detail=detail)], readers=[Reader("r", "t", "browse", visits=visits)], faults=[fault]
    )
    assert by_fault(history)["flip-seal"].met == met
