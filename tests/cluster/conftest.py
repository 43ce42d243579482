import os

import pytest


@pytest.fixture
def rounds() -> int:
    """How many times the tests that depend on chance try theirs: BRAIDMQ_TEST_ROUNDS, or a few."""
    return int(os.environ.get("BRAIDMQ_TEST_ROUNDS", "3"))
