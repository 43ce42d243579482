"""No two brokers of a cluster ever serve different stores, in whatever order they start and die."""

import pytest

from model.explorer import Violation
from model.same_store import Rules, explore


def test_no_broker_serves_a_copy_beside_one_that_serves_the_store() -> None:
    assert explore(Rules()) > 1000


@pytest.mark.parametrize(
    ("safeguard", "promise"),
    [
        ("proves_before_joining", "announced on a copy"),
        ("proves_to_elders", "two stores"),
        ("waits_for_the_silent", "two stores"),
        ("waits_for_starters", "two stores"),
    ],
)
def test_each_safeguard_is_needed(safeguard: str, promise: str) -> None:
    with pytest.raises(Violation, match=promise):
        explore(Rules()._replace(**{safeguard: False}))
