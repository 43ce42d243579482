"""For tests that publish by HTTP: the same on the fast path and without it.

A module that imports this fixture (`import is_fast as is_fast`) runs its tests on both.
"""

import pytest


@pytest.fixture(params=[True, False], ids=["fast", "asgi"])
def is_fast(request: pytest.FixtureRequest) -> bool:
    """Whether publishes may take the fast path."""
    return bool(request.param)
