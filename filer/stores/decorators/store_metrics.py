"""Counts of a store's calls by operation and outcome, and of its errors by cause."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from filer.durations import Durations
from filer.errors import (
    EtagMismatch,
    InvalidInput,
    ObjectExists,
    ObjectNotFound,
    OutcomeUnknown,
    StoreRefused,
)
from filer.stores.decorators.store_health import cause_of, is_trouble

OPERATIONS = ("create", "delete", "get", "head", "list", "list_folders", "replace", "tell_time")
"""The methods of `Store` that make requests."""

_OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (ObjectNotFound, "not_found"),
    (ObjectExists, "exists"),
    (EtagMismatch, "etag_mismatch"),
    (OutcomeUnknown, "unknown"),
    (StoreRefused, "refused"),
    (InvalidInput, "invalid"),
    (Exception, "error"),
    # Cancelled, or the reader of a list stopped early.
    (BaseException, "stopped"),
)
OUTCOMES = ("ok", *(name for _, name in _OUTCOMES))


@dataclass(frozen=True, slots=True)
class OperationMetrics:
    """The totals of all calls of one operation with one outcome: number of calls, bytes carried, seconds taken."""

    operation: str
    outcome: str
    calls: int = 0
    size_bytes: int = 0
    seconds: float = 0.0


class StoreMetrics:
    """A running total per operation and outcome.

    Operations are `OPERATIONS` and outcomes are `OUTCOMES`. `durations` has how long calls took, by operation.
    """

    def __init__(self) -> None:
        # Calls, bytes and seconds.
        self._totals: dict[tuple[str, str], tuple[int, int, float]] = {}
        self._errors: Counter[tuple[str, str]] = Counter()
        self.durations = {operation: Durations() for operation in OPERATIONS}

    def record(self, operation: str, error: BaseException | None, *, size_bytes: int, seconds: float) -> None:
        """Count a call that ended with that error, or without one."""
        outcome = "ok" if error is None else _outcome_of(error)
        self.durations[operation].observe(seconds)
        if isinstance(error, Exception) and is_trouble(error):
            self._errors[operation, cause_of(error)] += 1
        calls, total_bytes, total_seconds = self._totals.get((operation, outcome), (0, 0, 0.0))
        self._totals[operation, outcome] = calls + 1, total_bytes + size_bytes, total_seconds + seconds

    def snapshot(self) -> Sequence[OperationMetrics]:
        """The totals so far, by operation and outcome."""
        return [
            OperationMetrics(operation, outcome, calls, size_bytes, seconds)
            for (operation, outcome), (calls, size_bytes, seconds) in sorted(self._totals.items())
        ]

    def errors(self) -> Mapping[tuple[str, str], int]:
        """How many calls have failed, by operation and cause (`ENOSPC`, `503`, `timeout`, …)."""
        return dict(sorted(self._errors.items()))


def _outcome_of(error: BaseException) -> str:
    return next(name for kind, name in _OUTCOMES if isinstance(error, kind))
