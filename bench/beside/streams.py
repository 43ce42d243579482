"""Many subscribers of one topic, and what they cost its publisher (`bench/fan_out.py`) and a quiet topic.

Subscribers do not stand back for others here: they run at the priority of the broker.
"""

import asyncio
from collections.abc import Mapping

from bench import quiet_topic
from bench.beside.case import OURS, Case, Figure, Row, Side, Unit, Wanted
from bench.fan_out import MOST_RATIO, ROOT, measure, p99

ROUNDS = 2


def stream_cases() -> list[Case]:
    """The cases whose names begin with `fan-out`."""
    return [_fan_out(100, 200), _fan_out(300, 200), _fan_out(100, 600), _quiet_topic(300, 200)]


def _fan_out(subscribers: int, per_second: int) -> Case:
    name = f"fan-out-{subscribers}" + (f"-{per_second}" if per_second != 200 else "")

    def of(seconds: float) -> Mapping[str, Figure]:
        figures = asyncio.run(measure(subscribers, per_second, ROUNDS, seconds, nice=0))
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


def _quiet_topic(subscribers: int, per_second: int) -> Case:
    name = "quiet-topic"

    def of(seconds: float) -> Mapping[str, Figure]:
        waits = asyncio.run(quiet_topic.measure(subscribers, per_second, ROUNDS, seconds, ROOT))
        alone, beside = waits[quiet_topic.ALONE], waits[quiet_topic.BESIDE_SUBSCRIBERS]
        return {
            name: Figure(p99(beside.acked_ms) / p99(alone.acked_ms)),
            f"{name}-subscriber": Figure(p99(beside.arrived_ms) / p99(alone.arrived_ms)),
        }

    what = f"a quiet topic beside {subscribers} subscribers of a busy one"
    wanted = (Wanted(MOST_RATIO),)
    rows = [
        Row(name, f"{what}: its publisher's p99, to that without them", Unit.TIMES, wanted),
        Row(f"{name}-subscriber", "the same: its subscriber's p99", Unit.TIMES, wanted),
    ]
    return Case(name, rows, [Side(OURS, of)], rounds=1)
