"""What `read` refuses before it asks anybody."""

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from braidmq.errors import InvalidArgument
from braidmq.spark import read

NO_SESSION = cast(SparkSession, None)
POSITIONS: list[tuple[Any, str]] = [
    (5, "5 is no position: those are 'earliest'"),
    (None, "None is no position"),
    ({}, "an offset for each segment, as {0: 100}, not {}"),
    ({"0": 1}, "an offset for each segment"),
    ({0: "1"}, "an offset for each segment"),
    ("Earliest", "'Earliest' is not a marker of topic 't'"),
]


@pytest.mark.parametrize(("where", "reason"), POSITIONS)
@pytest.mark.parametrize("end", ["start", "end"])
def test_what_is_no_position(end: str, where: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        read(NO_SESSION, "t", **{end: where})
