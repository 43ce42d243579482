"""A history is the same after it has been a file."""

import random

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.checker.history import Attempt, Fault, Found, History, Reader, Request, Sent, Visit
from tests.unit.checker.simulated_history import Simulation


@given(st.integers(0, 2**32))
def test_there_and_back(seed: int) -> None:
    history = Simulation(random.Random(seed)).run(steps=10)
    history.faults.append(Fault("kill", 1.5, None, "b0"))
    again = History.from_json(history.to_json())
    assert again == history
    # Times are no part of what makes two messages equal.
    assert [m.at_seconds for r in again.readers for m in r.found] == [
        m.at_seconds for r in history.readers for m in r.found
    ]


@given(st.none() | st.binary(), st.none() | st.binary())
def test_any_bytes(key: bytes | None, value: bytes | None) -> None:
    visit = Visit("u", 0, 0.0, found=[Found(0, 0, key, value)])
    history = History(readers=[Reader("r", "t", "stream", positions={3: 4}, visits=[visit])])
    assert History.from_json(history.to_json()) == history


@pytest.mark.parametrize("data", [b"", b"[]", b'{"requests": 1}', b'{"readers": [{"name": "r"}]}'])
def test_what_is_no_history(data: bytes) -> None:
    with pytest.raises(pydantic.ValidationError):
        History.from_json(data)


def outcome(*attempts: str) -> str:
    return Request("p", "t", (Sent("k", 0),), [Attempt("u", 0, 0, each) for each in attempts]).outcome  # type: ignore[arg-type]


def test_the_outcome_of_several_attempts() -> None:
    assert outcome("failed", "failed") == "failed"
    assert outcome("failed", "unknown", "failed") == "unknown"
    assert outcome("unknown", "acknowledged", "failed") == "acknowledged"
    assert outcome() == "unknown"
