"""A case: its sides, its rows, what is wanted of each, and whether it was reached. Nothing here measures anything."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

OURS, KAFKA, NATS = "BraidMQ", "Kafka", "NATS"
PEERS = (KAFKA, NATS)


class Unit(Enum):
    """Of a figure: how it is written, and whether more of it is better."""

    PER_SECOND = ("{:,.0f}/s", True)
    MS = ("{:.2f} ms", False)
    SECONDS = ("{:.1f} s", False)
    PERCENT = ("{:.2f}%", False)
    TIMES = ("{:.2f} x", False)
    MIB = ("{:,.0f} MiB", False)

    def __init__(self, form: str, more_is_better: bool) -> None:
        self.form, self.more_is_better = form, more_is_better


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured of a side: the figure itself, and what the server used."""

    value: float
    processor_us: float | None = None
    """The server's processor time for a message."""
    memory_mib: float | None = None
    """The server's memory at the end (PSS)."""

    def shown(self, unit: Unit) -> str:
        """For people."""
        parts = [unit.form.format(self.value)]
        if self.processor_us is not None:
            parts.append(f"{self.processor_us:.2f} us")
        if self.memory_mib is not None and unit is not Unit.MIB:
            parts.append(f"{self.memory_mib:,.0f} MiB")
        return ", ".join(parts)


def median(figures: Sequence[Figure]) -> Figure:
    """The median of each part. Of memory it is the most."""
    processor_us = [each.processor_us for each in figures if each.processor_us is not None]
    memory_mib = [each.memory_mib for each in figures if each.memory_mib is not None]
    return Figure(
        statistics.median(each.value for each in figures),
        statistics.median(processor_us) if processor_us else None,
        max(memory_mib) if memory_mib else None,
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A bound of our figure, or of our processor time for a message: as it is, or as a ratio to that of a peer.

    Machines differ, so the ratio is what counts where there is a peer.
    """

    bound: float
    peer: str | None = None
    of_processor: bool = False

    def shown(self, unit: Unit) -> str:
        """For people."""
        sign = "<=" if self.of_processor or not unit.more_is_better else ">="
        if self.peer is not None:
            return f"{sign} {self.bound:g} x {self.peer}{' (processor)' if self.of_processor else ''}"
        return f"{sign} {f'{self.bound:g} us' if self.of_processor else unit.form.format(self.bound)}"

    def met(self, unit: Unit, figures: Mapping[str, Figure]) -> bool | None:
        """Whether it is, or None if the peer was not measured."""
        ours, bound = self._part(figures.get(OURS)), self.bound
        if self.peer is not None:
            theirs = self._part(figures.get(self.peer))
            if theirs is None:
                return None
            bound *= theirs
        if ours is None:
            return None
        return ours <= bound if self.of_processor or not unit.more_is_better else ours >= bound

    def _part(self, figure: Figure | None) -> float | None:
        if figure is None:
            return None
        return figure.processor_us if self.of_processor else figure.value


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of each side."""

    name: str
    what: str
    unit: Unit
    wanted: Sequence[Wanted] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """One of those that are compared. `measure` takes the seconds to measure for, and tells a figure by row."""

    name: str
    measure: Callable[[float], Mapping[str, Figure]]


@dataclass(frozen=True, slots=True)
class Case:
    """The same work for each side."""

    name: str
    rows: Sequence[Row]
    sides: Sequence[Side]
    rounds: int | None = None
    """Where it takes long: no more rounds than that."""


@dataclass(slots=True)
class Measured:
    """All rounds of a case: the figures by row and side."""

    case: Case
    figures: dict[str, dict[str, list[Figure]]] = field(default_factory=dict)

    def add(self, side: str, figures: Mapping[str, Figure]) -> None:
        """Add what a side has told."""
        for row, figure in figures.items():
            self.figures.setdefault(row, {}).setdefault(side, []).append(figure)

    def lines(self) -> list[str]:
        """Its rows, as a table in Markdown has them."""
        return [_line(row, self._medians(row.name)) for row in self.case.rows]

    def _medians(self, row: str) -> dict[str, Figure]:
        return {side: median(figures) for side, figures in self.figures.get(row, {}).items()}


HEADER = (
    f"| case | {OURS} | {KAFKA} | {NATS} | {OURS} / {KAFKA} | {OURS} / {NATS} | wanted |",
    "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
)


def _line(row: Row, figures: Mapping[str, Figure]) -> str:
    shown = [figures[name].shown(row.unit) if name in figures else "" for name in (OURS, *PEERS)]
    ratios = [_ratio(figures, peer) for peer in PEERS]
    wanted = "; ".join(f"{each.shown(row.unit)}: {_verdict(each.met(row.unit, figures))}" for each in row.wanted)
    return f"| {' | '.join([row.what, *shown, *ratios, wanted])} |"


def _ratio(figures: Mapping[str, Figure], peer: str) -> str:
    if OURS not in figures or peer not in figures or not figures[peer].value:
        return ""
    return f"{figures[OURS].value / figures[peer].value:.2f}"


def _verdict(met: bool | None) -> str:
    return "not measured" if met is None else "met" if met else "**missed**"
