"""The figures of a proof as tables, and the page that shows them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster.checker.history import Fault
from tests.cluster.checker.tally import Tally
from tests.cluster.faults.object_trials import Outcome, commit, summary

BEGIN, END = "<!-- make prove writes from here -->", "<!-- to here -->"


@dataclass(frozen=True)
class RoundFigures:
    """What happened in one round, and the verdict on it; `by_fault` are acknowledged and told messages."""

    faults: Sequence[Fault]
    tally: Tally
    by_fault: Mapping[str, Tally]


@dataclass(frozen=True)
class Proof:
    """Everything that one call of `make prove` has seen. `outcomes` are those of the trials, by store."""

    seed: int
    store: str
    seconds: float
    rounds: Sequence[RoundFigures]
    outcomes: Mapping[str, Sequence[Outcome]]

    @property
    def total(self) -> Tally:
        """The sum of all rounds."""
        return sum((each.tally for each in self.rounds), Tally())

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong anywhere."""
        return self.total.clean and not any(o.complaints for those in self.outcomes.values() for o in those)


def write_report(path: Path, proof: Proof) -> None:
    """Put the figures between the two marks of a page. Raises `ValueError` if it has no such marks."""
    text = path.read_text()
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(f"{path} has no {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n\n{figures(proof, commit(), datetime.now(UTC))}\n\n{END}{after}")


def figures(proof: Proof, commit: str, now: datetime) -> str:
    """The figures in Markdown."""
    total, faults = proof.total, sum(len(each.faults) for each in proof.rounds)
    trials = sum(len(those) for those in proof.outcomes.values())
    verdict = "Nothing was wrong." if proof.clean else "**Not clean.**"
    parts = [
        f"{now:%Y-%m-%d}, commit `{commit}`, seed {proof.seed}, {proof.seconds / 60:.0f} minutes: {len(proof.rounds)} "
        f"rounds on {proof.store} with {faults} faults and {total.acknowledged} acknowledged messages, and {trials} "
        f"trials. {verdict}",
        fault_table(proof.rounds),
    ]
    parts += [
        f"Trials on single objects, store: {store}.\n\n{summary(those)}" for store, those in proof.outcomes.items()
    ]
    return "\n\n".join(parts)


def fault_table(rounds: Sequence[RoundFigures]) -> str:
    """A line for each kind of fault. What is wrong counts for each kind that its round had."""
    struck = Counter(fault.name for each in rounds for fault in each.faults)
    lines = [
        "| fault | times | acknowledged | lost | doubled | reordered | wrong | told |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in sorted(struck):
        had = [each for each in rounds if name in each.by_fault]
        own = sum((each.by_fault[name] for each in had), Tally())
        lines.append(_line(name, struck[name], sum((each.tally for each in had), Tally()), own))
    total = sum((each.tally for each in rounds), Tally())
    lines.append(_line("**all**", struck.total(), total, total))
    return "\n".join(lines)


def _line(name: str, times: int, verdict: Tally, own: Tally) -> str:
    cells = (times, own.acknowledged, verdict.lost, verdict.doubled, verdict.reordered, verdict.wrong, own.told)
    return f"| {name} | {' | '.join(map(str, cells))} |"
