from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from mq.metrics.metrics import Metrics


def test_there_are_no_series_of_when_series_began() -> None:
    metrics = Metrics()
    metrics.requests.refused.labels("draining").inc()
    metrics.upkeep.file_bytes.observe(1)
    assert b"_created" not in b"".join(metrics.pieces())


def test_what_the_library_does_for_other_registries_stays_as_it_is() -> None:
    b"".join(Metrics().pieces())
    registry = CollectorRegistry()
    Counter("a", "A counter of the process that has the broker in it.", registry=registry)
    assert b"a_created" in generate_latest(registry)


def test_two_brokers_in_a_process_count_for_themselves() -> None:
    one, other = Metrics(), Metrics()
    one.upkeep.deleted.inc()
    assert b"braidmq_files_deleted_total 1.0" in b"".join(one.pieces())
    assert b"braidmq_files_deleted_total 0.0" in b"".join(other.pieces())


def test_come_in_pieces_that_are_short() -> None:
    """Each is a part of a step on the event loop."""
    metrics = Metrics()
    pieces = list(metrics.pieces())
    assert len(pieces) > 20 and max(map(len, pieces)) < 16 * 1024
    families = [family.name for piece in pieces for family in text_string_to_metric_families(piece.decode())]
    assert len(families) == len(set(families))
    assert {"braidmq_build_info", "braidmq_streams"} <= set(families)


def test_each_time_that_touch_is_lost_counts_once() -> None:
    cluster = Metrics().cluster
    for in_touch in (False, True, True, False, False, True, False):
        cluster.see_touch(in_touch)
    (family,) = cluster.lost_touch.collect()
    assert [sample.value for sample in family.samples if sample.name == "braidmq_lost_touch_total"] == [2]
