"""Claims of a queue group, and NATS' durable consumer with explicit acks (`bench/claims.py`)."""

import statistics
from collections.abc import Mapping

from bench import claims
from bench.beside.case import NATS, OURS, Case, Figure, Row, Side, Unit, Wanted
from bench.beside.programs import Programs
from bench.beside.publishing import Measure
from bench.claims import MESSAGE_BYTES, PEER_MESSAGES
from bench.peers.nats import Nats, claimed_per_second

CONSUMERS, MESSAGES = 2, 1_000_000


def claim_cases(found: Programs) -> list[Case]:
    """The cases whose names begin with `claims`."""
    return [
        _case(found, claims.CASES[0], "claims-arrow", batch=1_000, wanted=(Wanted(1.0, NATS),)),
        _case(found, claims.CASES[1], "claims-json", batch=100, wanted=()),
    ]


def _case(found: Programs, kind: claims.Case, name: str, *, batch: int, wanted: tuple[Wanted, ...]) -> Case:
    rows = [
        Row(name, f"claimed and acked, {kind.name}, {CONSUMERS} consumers, acks answered", Unit.PER_SECOND, wanted),
        Row(f"{name}-ack", "the same: an ack, p50", Unit.MS),
    ]
    sides = [Side(OURS, _ours(name, kind))]
    if found.nats is not None:
        sides.append(Side(NATS, _nats(name, found.nats, batch)))
    return Case(name, rows, sides)


def _ours(name: str, kind: claims.Case) -> Measure:
    def measure(seconds: float) -> Mapping[str, Figure]:
        done, took_seconds = claims.measure(kind, seconds=seconds, messages=MESSAGES, consumers=CONSUMERS)
        return {name: Figure(done.acked / took_seconds), f"{name}-ack": Figure(statistics.median(done.ack_ms))}

    return measure


def _nats(name: str, programs: Nats, batch: int) -> Measure:
    def measure(seconds: float) -> Mapping[str, Figure]:
        rate = claimed_per_second(
            programs,
            messages=PEER_MESSAGES // 10,
            message_bytes=MESSAGE_BYTES,
            consumers=CONSUMERS,
            batch=batch,
            double_ack=True,
        )
        return {name: Figure(rate)}

    return measure
