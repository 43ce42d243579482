from collections.abc import Iterator

import pytest

from braidmq.testing import InMemoryBroker


@pytest.fixture(scope="session")
def broker() -> Iterator[InMemoryBroker]:
    """A real broker shared by the tests, which take topics of their own."""
    with InMemoryBroker() as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test's own."""
    return f"{request.node.name.replace('[', '.').replace(']', '')}"[:200]
