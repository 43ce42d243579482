"""What a command says when a broker has no room for it."""

import pytest

from braidmq.errors import FrontStoreFull
from mq.base.errors import QuotaExceeded
from mq.cli.failures import report


@pytest.mark.parametrize(
    ("message", "seconds", "told"),
    [
        ("the front store is full", 2.0, "mq: the front store is full; come back in 2 s\n"),
        ("the front store is full", 0.0, "mq: the front store is full\n"),
        (str(QuotaExceeded("streams", 3, 1.2)), 2.0, f"mq: {QuotaExceeded('streams', 3, 1.2)}\n"),
    ],
)
def test_it_says_when_to_come_back(message: str, seconds: float, told: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert report(FrontStoreFull(message, retry_after_seconds=seconds)) == 1
    assert capfd.readouterr().err == told


def test_a_quota_names_its_limit_and_the_time() -> None:
    assert str(QuotaExceeded("streams", 3, 1.2)) == (
        "the quota of this principal has streams = 3 at each broker: more in 2 s"
    )
