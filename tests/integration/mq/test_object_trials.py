"""A few of the trials of `tests.cluster.faults.object_trials`: one for each kind of object.

Any number of others: `make trials TRIALS=1000`.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.cluster.faults.object_trials import Plan, run_trials
from tests.support.store.object_faults import KINDS

SEED = 1


@pytest.fixture
def quiet() -> Iterator[None]:
    """Brokers log each object that they find damaged, as they should."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def trial_numbers() -> list[int]:
    """The first trial of each kind."""
    kinds = [Plan.draw(SEED, number).kind for number in range(100)]
    return sorted(kinds.index(kind) for kind in KINDS)


@pytest.mark.timeout(300)
async def test_no_reader_is_deceived_and_what_is_put_back_heals(quiet: None) -> None:
    outcomes = await run_trials("directory", SEED, trial_numbers())
    assert [f"{each.plan}: {each.complaints}" for each in outcomes if each.complaints] == []
    # Upkeep may be about to replace an object, and be faster.
    assert sum(each.damage is not None for each in outcomes) >= len(KINDS) - 1
