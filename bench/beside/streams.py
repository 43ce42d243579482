"""Many subscribers of one topic, and what they cost its publisher (`bench/fan_out.py`)."""

import asyncio
from collections.abc import Mapping

from bench.beside.case import OURS, Case, Figure, Row, Side, Unit, Wanted
from bench.fan_out import MOST_RATIO, measure

ROUNDS = 2


def stream_cases() -> list[Case]:
    """The cases whose names begin with `fan-out`."""
    return [_fan_out(100, 200), _fan_out(300, 200), _fan_out(100, 600)]


def _fan_out(subscribers: int, per_second: int) -> Case:
    name = f"fan-out-{subscribers}" + (f"-{per_second}" if per_second != 200 else "")

    def of(seconds: float) -> Mapping[str, Figure]:
        figures = asyncio.run(measure(subscribers, per_second, ROUNDS, seconds))
        delivered = figures.delivered / figures.seconds
        return {
            name: Figure(delivered, figures.processor_seconds / figures.delivered * 1e6, figures.memory_mib),
            f"{name}-published": Figure(figures.published / figures.seconds),
            f"{name}-p99": Figure(figures.p99_ratio),
        }

    what = f"{subscribers} subscribers (NDJSON), {per_second} messages/s offered"
    # All that is offered is to be delivered: 1 % less is what the ends of a round take.
    least = 0.99 * per_second
    rows = [
        Row(name, f"{what}: delivered", Unit.PER_SECOND, (Wanted(least * subscribers),)),
        Row(f"{name}-published", "the same: published", Unit.PER_SECOND, (Wanted(least),)),
        Row(f"{name}-p99", "the same: its publisher's p99, to that without them", Unit.TIMES, (Wanted(MOST_RATIO),)),
    ]
    return Case(name, rows, [Side(OURS, of)], rounds=1)
