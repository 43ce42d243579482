import pytest

from braidmq.models import Segment, SegmentTraffic

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
