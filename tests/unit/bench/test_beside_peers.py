"""The table of `make bench-peers`: ratios, verdicts, and what peers' programs tell."""

from pathlib import Path

import pytest

from bench.beside.all_cases import all_cases
from bench.beside.case import HEADER, KAFKA, NATS, OURS, Case, Figure, Measured, Row, Unit, Wanted, median
from bench.beside.programs import Programs
from bench.harness.server_process import BenchFailed
from bench.peers import kafka, nats, versions

FIGURES = {OURS: Figure(300.0, 4.0), KAFKA: Figure(100.0, 5.0)}


@pytest.mark.parametrize(
    ("wanted", "unit", "met"),
    [
        (Wanted(300), Unit.PER_SECOND, True),
        (Wanted(301), Unit.PER_SECOND, False),
        (Wanted(3.0, KAFKA), Unit.PER_SECOND, True),
        (Wanted(3.1, KAFKA), Unit.PER_SECOND, False),
        (Wanted(3.0, KAFKA), Unit.MS, True),
        (Wanted(2.9, KAFKA), Unit.MS, False),
        (Wanted(4.0, of_processor=True), Unit.PER_SECOND, True),
        (Wanted(0.7, KAFKA, of_processor=True), Unit.PER_SECOND, False),
        (Wanted(1.0, NATS), Unit.PER_SECOND, None),
    ],
)
def test_what_is_wanted_is_a_bound_or_a_ratio_to_a_peer(wanted: Wanted, unit: Unit, met: bool | None) -> None:
    assert wanted.met(unit, FIGURES) is met


def test_a_row_has_the_medians_of_each_side_and_the_ratios() -> None:
    row = Row("single", "single messages", Unit.PER_SECOND, (Wanted(1_000), Wanted(0.4, NATS), Wanted(2.0, KAFKA)))
    measured = Measured(Case("single", [row], []))
    for value in (1_000.0, 1_200.0, 1_100.0):
        measured.add(OURS, {"single": Figure(value, 30.0, 80.0 + value / 100)})
    measured.add(NATS, {"single": Figure(2_200.0)})
    assert measured.lines() == [
        "| single messages | 1,100/s, 30.00 us, 92 MiB |  | 2,200/s |  | 0.50 "
        "| >= 1,000/s: met; >= 0.4 x NATS: met; >= 2 x Kafka: not measured |"
    ]
    assert {line.count("|") for line in (*HEADER, *measured.lines())} == {8}


def test_of_rounds_the_median_counts_and_the_most_memory() -> None:
    rounds = [Figure(3.0, 9.0, 1.0), Figure(1.0, 7.0, 5.0), Figure(2.0, None, 3.0)]
    assert median(rounds) == Figure(2.0, 8.0, 5.0)
    assert median([Figure(1.0)]) == Figure(1.0)


def test_cases_have_names_of_their_own_and_each_row_is_told_by_one_case() -> None:
    cases = all_cases(Programs())
    rows = [row.name for case in cases for row in case.rows]
    assert len({case.name for case in cases}) == len(cases) > 20
    assert len(set(rows)) == len(rows)
    assert all([side.name for side in case.sides] == [OURS] for case in cases)


def test_peers_have_sides_where_their_programs_are_there() -> None:
    found = Programs(kafka.Kafka("jars/*"), nats.Nats(Path("server"), Path("tool")), Path("packages"))
    sides = {case.name: [side.name for side in case.sides] for case in all_cases(found)}
    assert sides["arrow-1k"] == sides["single-64"] == sides["python-send-1"] == [OURS, KAFKA, NATS]
    # A stream of NATS has no parts, and nobody else has files to refer to.
    assert sides["arrow-1k-4"] == sides["python-read-4"] == [OURS, KAFKA]
    assert sides["reading-files-1"] == [OURS]


def test_nats_bench_adds_up_its_clients_at_the_end() -> None:
    told = "[1] 5,000 msgs/sec ~ 1 MiB/sec\n NATS JetStream publisher aggregated stats: 48,123 msgs/sec ~ 47 MiB/sec\n"
    assert nats.rate_told(f"Pub stats: 12,000 msgs/sec ~ 12 MiB/sec\n{told}") == 48_123
    with pytest.raises(BenchFailed, match="no rate"):
        nats.rate_told("connection refused")


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kafka, "FOLDER", tmp_path)
    monkeypatch.setattr(nats, "FOLDER", tmp_path)
    with pytest.raises(BenchFailed, match="no java in PATH"):
        kafka.kafka()
    with pytest.raises(BenchFailed, match="no go in PATH"):
        nats.nats()
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n", "utf-8")
    java.chmod(0o755)
    with pytest.raises(BenchFailed, match="java -version says"):
        kafka.kafka()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n", "utf-8")
    with pytest.raises(BenchFailed, match="no mvn in PATH"):
        kafka.kafka()


def test_versions_are_told_as_they_are_pinned() -> None:
    pinned = versions.versions()
    told = ", ".join(versions.said())
    assert f"Kafka {pinned['kafka']['version']}" in told
    assert all(package in told for package in pinned["python"]["packages"])
