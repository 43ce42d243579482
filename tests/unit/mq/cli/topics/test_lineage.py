"""How segments follow one another, in words."""

from braidmq.models import Segment
from mq.cli.topics.lineage import lineage


def segment(number: int, *successors: int) -> Segment:
    state = "sealed" if successors else "open"
    return Segment.model_validate({"segment": number, "range": (0, 1), "state": state, "successors": successors})


def test_splits_merges_and_replacements() -> None:
    segments = [segment(0, 2, 3), segment(1, 4), segment(2, 5), segment(3, 6), segment(4, 6), segment(5), segment(6)]
    assert lineage(segments) == [
        "0 split into 2 and 3",
        "1 was replaced by 4",
        "2 was replaced by 5",
        "3 and 4 merged into 6",
    ]


def test_more_than_two() -> None:
    assert lineage([segment(0, 1, 2, 3)]) == ["0 split into 1, 2 and 3"]


def test_nothing_has_followed_anything() -> None:
    assert lineage([segment(0), segment(1)]) == []
