"""Which topic a key belongs to."""

import pytest

from filer import keys
from filer.keys import FileName


@pytest.mark.parametrize(
    ("key", "topic"),
    [
        (keys.topic("t"), "t"),
        (keys.segment_file("a.b-c", 3, FileName(0)), "a.b-c"),
        (keys.upload("topics", "topics"), "topics"),
        (keys.CLUSTER, None),
        (keys.scrub_record("t"), None),
        ("topics/t", None),
    ],
)
def test_the_topic_of_a_key(key: str, topic: str | None) -> None:
    assert keys.topic_of(key) == topic
