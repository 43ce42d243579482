import pytest

from braidmq.models import LostObject, Segment, SegmentTraffic, Topic

TRAFFIC = {"messages_per_second": 3.0, "bytes_per_second": 300.0, "times_target": 0.5}


@pytest.mark.parametrize("name", ["traffic", "load"])
def test_the_traffic_of_a_segment_is_read_from_new_and_old_brokers(name: str) -> None:
    answer = {"segment": 0, "range": [0, 65536], "state": "open", name: TRAFFIC}
    assert Segment.model_validate(answer).traffic == SegmentTraffic(**TRAFFIC)


def test_an_answer_without_traffic_is_read() -> None:
    assert Segment.model_validate({"segment": 0, "range": [0, 65536], "state": "open"}).traffic is None


def test_unknown_members_are_ignored() -> None:
    answer = {"segment": 0, "range": [0, 65536], "state": "open", "color": "blue"}
    assert Segment.model_validate(answer).segment == 0


def test_lost_objects_are_read_and_older_brokers_tell_of_none() -> None:
    answer = {"topic": "t", "config": {}, "version": 1, "segments": []}
    assert Topic.model_validate(answer).damaged == ()
    lost = {"key": "topics/t/k", "what": "damaged", "segment": 3, "offset": 7, "next_offset": None}
    assert Topic.model_validate({**answer, "damaged": [lost]}).damaged == (
        LostObject(key="topics/t/k", what="damaged", segment=3, offset=7),
    )
