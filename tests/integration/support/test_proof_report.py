"""The figures of a proof: each fault has its line, and what is wrong is not hidden by what is not."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cluster.checker.history import Attempt, Fault, Gap, History, Reader, Request, Sent, Visit
from tests.cluster.checker.tally import Tally
from tests.cluster.faults.object_trials import Outcome, Plan
from tests.cluster.faults.proof_report import BEGIN, END, Proof, RoundFigures, fault_table, figures, write_report
from tests.cluster.faults.prove import by_fault
from tests.support.store.object_faults import Damage

CLEAN = RoundFigures([Fault("kill", 1.0, 2.0)], Tally(acknowledged=10, told=1), {"kill": Tally(acknowledged=7, told=1)})
BAD = RoundFigures(
    [Fault("kill", 1.0, 2.0), Fault("flip", 3.0, 4.0)],
    Tally(acknowledged=5, lost=2, wrong=1),
    {"kill": Tally(acknowledged=1), "flip": Tally(acknowledged=4)},
)


def test_a_line_for_each_fault_and_one_for_all() -> None:
    assert fault_table([CLEAN, BAD]).splitlines()[2:] == [
        "| flip | 1 | 4 | 2 | 0 | 0 | 1 | 0 |",
        "| kill | 2 | 8 | 2 | 0 | 0 | 1 | 1 |",
        "| **all** | 3 | 15 | 2 | 0 | 0 | 1 | 1 |",
    ]


def outcome(*complaints: str) -> Outcome:
    plan = Plan(0, "1 0", "seal", "flip", True, False, "export")
    return Outcome(plan, Damage("seal", "flip", "k", b"a", b"b"), 3, 1, False, list(complaints))


def proof(*rounds: RoundFigures, trial: Outcome) -> Proof:
    return Proof(7, "s3", 120.0, rounds, {"directory": [trial]})


def test_the_whole_page() -> None:
    now = datetime(2026, 11, 23, tzinfo=UTC)
    text = figures(proof(CLEAN, trial=outcome()), "abc", now)
    assert text.startswith("2026-11-23, commit `abc`, seed 7, 2 minutes: 1 rounds on s3 with 1 faults and 10 acknowled")
    assert "Nothing was wrong." in text
    assert "| seal | flip | 1 | 3 | 1 | 0 | 0 |" in text


@pytest.mark.parametrize("one", [proof(BAD, trial=outcome()), proof(CLEAN, trial=outcome("missing: all"))])
def test_what_is_wrong_anywhere_is_said_first(one: Proof) -> None:
    assert not one.clean
    assert "**Not clean.**" in figures(one, "abc", datetime(2026, 1, 1, tzinfo=UTC)).splitlines()[0]


def test_only_what_is_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n{BEGIN}\nthe figures of before\n{END}\nafter\n")
    write_report(page, proof(CLEAN, trial=outcome()))
    text = page.read_text()
    assert (
        text.startswith(f"# Before\n{BEGIN}\n")
        and text.endswith(f"{END}\nafter\n")
        and "before" not in text.lower().replace("# before", "")
    )
    page.write_text("# No marks")
    with pytest.raises(ValueError, match="has no"):
        write_report(page, proof(CLEAN, trial=outcome()))


def test_what_happened_counts_for_the_fault_that_went_before() -> None:
    requests = [
        Request("p", "t", (Sent("k", n),), [Attempt("b", at, at, "acknowledged", ((0, n, 1),))])
        for n, at in enumerate((0.5, 1.5, 2.5, 9.0))
    ]
    visits = [Visit("b", 0, 2.1, 2.2, told=[Gap("k", 0, 0, 1)])]
    faults = [Fault("kill", 1.0, 1.2), Fault("flip", 2.0, 3.0), Fault("kill", 8.0, 8.1)]
    history = History(requests=requests, readers=[Reader("r", "t", "browse", visits=visits)], faults=faults)
    assert by_fault(history) == {"kill": Tally(acknowledged=2), "flip": Tally(acknowledged=1, told=1)}
