import pytest
from prometheus_client.parser import text_string_to_metric_families

from filer.errors import InvalidName
from filer.keys import check_name
from mq.metrics.topic_families import (
    FAULTS,
    MESSAGES_STORED,
    MISSING_OBJECTS,
    OPEN_SEGMENTS,
    RECORD_FAULTS,
    SERIES,
    TOPIC_BYTES,
    TRANSITIONS,
)
from mq.metrics.topic_metrics import OTHER, TopicMetrics


def shown(topics: TopicMetrics) -> dict[str, dict[str, float]]:
    """The value of each series, by topic, as Prometheus reads it."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(b"".join(topics.pieces()).decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            series = found.setdefault(labels.pop("topic"), {})
            series[sample.name + "".join(f" {value}" for value in labels.values())] = sample.value
    return found


def test_all_series_of_a_topic_begin_at_0() -> None:
    topics = TopicMetrics(2)
    topics.of("t").open()
    assert set(shown(topics)) == {"t", OTHER}
    assert len(shown(topics)["t"]) == SERIES
    assert set(shown(topics)["t"].values()) == set(shown(topics)[OTHER].values()) == {0.0}


def test_what_is_counted_and_set_is_shown_with_its_label() -> None:
    topics = TopicMetrics(2)
    series = topics.of("t")
    series.open()
    series.count(MESSAGES_STORED, 3)
    series.count(MESSAGES_STORED)
    series.count(TRANSITIONS, label="split")
    series.count(FAULTS, label="older")
    series.set(OPEN_SEGMENTS, 5)
    series.set(OPEN_SEGMENTS, 2)
    told = shown(topics)["t"]
    assert told["braidmq_messages_stored_total"] == topics.value(MESSAGES_STORED, "t") == 4
    assert told["braidmq_transitions_total split"] == topics.value(TRANSITIONS, "t", "split") == 1
    assert told["braidmq_transitions_total merge"] == 0
    assert [told[f"braidmq_record_faults_total {kind}"] for kind in RECORD_FAULTS] == [0, 0, 1]
    assert told["braidmq_open_segments"] == 2
    assert set(shown(topics)[OTHER].values()) == {0.0}


def test_the_series_of_a_deleted_topic_go_and_late_news_do_not_bring_them_back() -> None:
    topics = TopicMetrics(2)
    series = topics.of("t")
    series.open()
    series.count(MESSAGES_STORED, 7)
    series.set(OPEN_SEGMENTS, 2)
    series.close()
    assert set(shown(topics)) == {OTHER}
    series.count(MESSAGES_STORED, 2)
    topics.of("t").set(OPEN_SEGMENTS, 1)
    series.close()
    assert set(shown(topics)) == {OTHER}
    assert shown(topics)[OTHER]["braidmq_messages_stored_total"] == 2, "only what came after its end"
    assert shown(topics)[OTHER]["braidmq_open_segments"] == 0


def test_a_topic_that_is_created_again_begins_at_0() -> None:
    topics = TopicMetrics(2)
    series = topics.of("t")
    series.open()
    series.count(MESSAGES_STORED, 7)
    series.close()
    series.open()
    assert set(shown(topics)["t"].values()) == {0.0}
    series.count(MESSAGES_STORED)
    assert topics.value(MESSAGES_STORED, "t") == 1


def test_topics_without_traffic_make_room_for_those_with() -> None:
    topics = TopicMetrics(2)
    for name in "abcd":
        topics.of(name).open()
        topics.of(name).set(TOPIC_BYTES, 10)
    assert set(shown(topics)) == {"a", "b", OTHER}
    assert shown(topics)[OTHER]["braidmq_topic_bytes"] == 20
    topics.of("b").count(MESSAGES_STORED)
    topics.of("d").count(MESSAGES_STORED, 0)
    topics.of("c").count(MESSAGES_STORED)
    assert set(shown(topics)) == {"b", "c", OTHER}
    assert shown(topics)["c"]["braidmq_topic_bytes"] == 10
    assert shown(topics)[OTHER]["braidmq_topic_bytes"] == 20


def test_a_topic_of_which_something_is_lost_makes_no_room() -> None:
    topics = TopicMetrics(1)
    topics.of("a").open()
    topics.of("b").set(MISSING_OBJECTS, 1, "damaged")
    assert set(shown(topics)) == {"b", OTHER}
    topics.of("c").count(MESSAGES_STORED)
    assert set(shown(topics)) == {"b", OTHER}
    assert shown(topics)["b"]["braidmq_missing_objects damaged"] == 1


def test_topics_that_find_no_room_count_together_and_sums_are_right() -> None:
    topics = TopicMetrics(2)
    for name in "abcd":
        topics.of(name).count(MESSAGES_STORED, 5)
    assert set(shown(topics)) == {"a", "b", OTHER}
    assert sum(each["braidmq_messages_stored_total"] for each in shown(topics).values()) == 20
    assert topics.value(MESSAGES_STORED, OTHER) == 10


def test_the_counters_of_the_others_never_decrease() -> None:
    topics = TopicMetrics(1)
    for name in "ab":
        topics.of(name).count(MESSAGES_STORED, 5)
    topics.of("a").close()
    assert topics.value(MESSAGES_STORED, OTHER) == 5, "what a deleted topic had does not come to the others"
    topics.of("b").count(MESSAGES_STORED, 1)
    assert topics.value(MESSAGES_STORED, OTHER) == 5, "what counted for the others stays there"
    assert topics.value(MESSAGES_STORED, "b") == 1, "and what comes later has the room that became free"


@pytest.mark.parametrize("most", [0, 3])
def test_the_number_of_series_is_bounded_whatever_there_is(most: int) -> None:
    topics = TopicMetrics(most)
    for number in range(200):
        topics.of(f"t{number}").open()
        topics.of(f"t{number}").set(OPEN_SEGMENTS, 1)
        topics.of(f"t{number}").count(MESSAGES_STORED)
    assert sum(len(series) for series in shown(topics).values()) == (most + 1) * SERIES
    assert sum(each["braidmq_open_segments"] for each in shown(topics).values()) == 200


def test_no_topic_can_have_the_name_of_the_others() -> None:
    with pytest.raises(InvalidName):
        check_name(OTHER)
