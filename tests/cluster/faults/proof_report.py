"""The figures of a proof as tables, and the page that shows them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster.checker.history import Fault, History
from tests.cluster.checker.tally import CHECKS, Tally
from tests.cluster.faults.object_trials import Outcome, summary

BEGIN, END = "<!-- make prove writes from here -->", "<!-- to here -->"
COMPLAINTS_SHOWN, COMPLAINT_CHARS = 10, 300
SHOWN_CHECKS = (*CHECKS, "wrong")


@dataclass(frozen=True)
class RoundFigures:
    """What happened in one round, and the verdict on it, if it `ended`.

    `by_fault` are what was acknowledged and told, by name of the fault.
    """

    number: int
    store: str
    seed: int
    faults: Sequence[Fault]
    tally: Tally
    by_fault: Mapping[str, "FaultFigures"]
    complaints: Sequence[str]
    ended: bool

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if not self.tally.clean:
            return "**not clean**"
        return "clean" if self.ended else "interrupted"


@dataclass(frozen=True)
class FaultFigures:
    """How often a fault struck, what was acknowledged from then to the next one, and what was told of its object.

    `met` counts the damages that somebody came across: a reader or a producer was told, or a broker wrote it down.
    """

    times: int = 0
    acknowledged: int = 0
    met: int = 0
    told: int = 0

    def __add__(self, other: "FaultFigures") -> "FaultFigures":
        return FaultFigures(
            self.times + other.times,
            self.acknowledged + other.acknowledged,
            self.met + other.met,
            self.told + other.told,
        )


@dataclass
class Proof:
    """Everything that one call of `make prove` has seen so far. `outcomes` are those of the trials, by store.

    `commit` is what was checked out when it began. `ended` says why it ended early; empty if it did not.
    """

    seed: int
    commit: str
    seconds: float = 0.0
    rounds: list[RoundFigures] = field(default_factory=list)
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    ended: str = ""

    @property
    def total(self) -> Tally:
        """The sum of all rounds."""
        return sum((each.tally for each in self.rounds), Tally())

    @property
    def faults(self) -> list[Fault]:
        """Those of all rounds."""
        return [fault for each in self.rounds for fault in each.faults]

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong anywhere."""
        return self.total.clean and not any(o.complaints for those in self.outcomes.values() for o in those)


def by_fault(history: History) -> dict[str, FaultFigures]:
    """The figures of each fault of a history, by its name."""
    spans = [(fault, fault.started_seconds) for fault in history.faults]
    ends = [start for _, start in spans[1:]] + [float("inf")]
    figures: dict[str, FaultFigures] = {}
    for (fault, start), end in zip(spans, ends, strict=True):
        acknowledged = sum(
            len(request.messages)
            for request in history.requests
            for attempt in request.acknowledgements[:1]
            if start <= attempt.ended_seconds < end
        )
        told = told_of(history, fault, until_seconds=end)
        met = bool(told or fault.logged)
        figures[fault.name] = figures.get(fault.name, FaultFigures()) + FaultFigures(1, acknowledged, met, told)
    return figures


def told_of(history: History, fault: Fault, *, until_seconds: float) -> int:
    """How many answers to readers and producers named the object of a fault, from its beginning on."""
    if not fault.key:
        return 0
    to_readers = sum(
        gap.key == fault.key
        for reader in history.readers
        for visit in reader.visits
        if fault.started_seconds <= visit.ended_seconds < until_seconds
        for gap in visit.told
    )
    to_producers = sum(
        fault.key in attempt.detail
        for request in history.requests
        for attempt in request.attempts
        if fault.started_seconds <= attempt.ended_seconds < until_seconds
    )
    return to_readers + to_producers


def write_report(path: Path, proof: Proof) -> None:
    """Put the figures between the two marks of a page. Raises `ValueError` if it has no such marks."""
    text = path.read_text()
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(f"{path} has no {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n\n{figures(proof, datetime.now(UTC))}\n\n{END}{after}")


def figures(proof: Proof, now: datetime) -> str:
    """The figures in Markdown."""
    total, faults = proof.total, len(proof.faults)
    trials = sum(len(those) for those in proof.outcomes.values())
    verdict = "Nothing was wrong." if proof.clean else "**Not clean.**"
    ended = f" It did not run to its end: {proof.ended}." if proof.ended else ""
    parts = [
        f"{now:%Y-%m-%d}, commit `{proof.commit}`, seed {proof.seed}, {proof.seconds / 60:.0f} minutes: "
        f"{len(proof.rounds)} rounds with {faults} faults and {total.acknowledged} acknowledged messages, and {trials} "
        f"trials. {verdict}{ended}",
        "By round. Its seed determines its choices; the columns from *lost* on count complaints by check.",
        round_table(proof.rounds),
        "By fault. *acknowledged* are messages from its beginning to that of the next one. *met* are the damages that "
        "somebody came across, and *told* the answers that named the object.",
        fault_table(proof.rounds),
        *_complaints(proof),
    ]
    parts += [
        f"Trials on single objects, store: {store}.\n\n{summary(those)}"
        for store, those in proof.outcomes.items()
        if those
    ]
    return "\n\n".join(parts)


def round_table(rounds: Sequence[RoundFigures]) -> str:
    """A line for each round, with the verdict of each check."""
    lines = [
        f"| round | store | seed | faults | acknowledged | told | {' | '.join(SHOWN_CHECKS)} | verdict |",
        f"| ---: | --- | ---: | ---: | ---: | ---: | {'---: | ' * len(SHOWN_CHECKS)}--- |",
    ]
    for each in rounds:
        head = (each.number, each.store, each.seed, len(each.faults))
        lines.append(_row(*head, *_tallied(each.tally), each.verdict))
    total = sum((each.tally for each in rounds), Tally())
    faults = sum(len(each.faults) for each in rounds)
    lines.append(_row("**all**", "", "", faults, *_tallied(total), "clean" if total.clean else "**not clean**"))
    return "\n".join(lines)


def _tallied(tally: Tally) -> tuple[int, ...]:
    return (tally.acknowledged, tally.told, *(getattr(tally, name) for name in SHOWN_CHECKS))


def fault_table(rounds: Sequence[RoundFigures]) -> str:
    """A line for each kind of fault. What is wrong counts for each kind that its round had."""
    struck = Counter((each.store, fault.name) for each in rounds for fault in each.faults)
    lines = [
        "| fault | on a directory | on S3 | met | told | acknowledged | lost | doubled | reordered | otherwise wrong |",
        f"| --- | {'---: | ' * 8}---: |",
    ]
    for name in sorted({name for _, name in struck}):
        had = [each for each in rounds if name in each.by_fault]
        own = sum((each.by_fault[name] for each in had), FaultFigures())
        verdict = sum((each.tally for each in had), Tally())
        lines.append(_fault_row(name, struck["directory", name], struck["s3", name], own, verdict))
    on = Counter(store for store, _ in struck.elements())
    every = sum((one for each in rounds for one in each.by_fault.values()), FaultFigures())
    total = sum((each.tally for each in rounds), Tally())
    lines.append(_fault_row("**all**", on["directory"], on["s3"], every, total))
    return "\n".join(lines)


def _fault_row(name: str, on_directory: int, on_s3: int, own: FaultFigures, verdict: Tally) -> str:
    damages = name.partition("-")[0] in ("delete", "truncate", "flip", "older") or name.startswith("**")
    otherwise = verdict.complaints - verdict.lost - verdict.doubled - verdict.reordered
    told = (own.met, own.told) if damages else ("", "")
    counted = (own.acknowledged, verdict.lost, verdict.doubled, verdict.reordered, otherwise)
    return _row(name, on_directory, on_s3, *told, *counted)


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _complaints(proof: Proof) -> list[str]:
    """The first complaints of rounds and trials, as a list."""
    found = [f"round {each.number}: {complaint}" for each in proof.rounds for complaint in each.complaints]
    found += [
        f"trial {outcome.plan} on {store}: {complaint}"
        for store, those in proof.outcomes.items()
        for outcome in those
        for complaint in outcome.complaints
    ]
    if not found:
        return []
    shown = "\n".join(f"- `{each[:COMPLAINT_CHARS].replace(chr(10), ' ')}`" for each in found[:COMPLAINTS_SHOWN])
    return [f"What was wrong ({len(found)} complaints, the first {min(len(found), COMPLAINTS_SHOWN)}):\n\n{shown}"]
