"""The group that shows how far a query is: what goes wrong with it must not end the query."""

import logging
from typing import Any, cast

import pytest

from braidmq.blocking_groups import Group
from braidmq.errors import Conflict, NoConnection
from braidmq.spark.streaming.shown_progress import ShownProgress
from filer.topic.positions import from_marker


class FailingGroup:
    """Notes what is asked of it, and fails as often as `failures` say, one call after the other."""

    name = "g"

    def __init__(self, *failures: Exception | None) -> None:
        self._failures = list(failures)
        self.calls: list[str] = []
        self.positions: dict[int, int] = {}

    def create(self, **settings: Any) -> None:
        assert settings == {"mode": "stream"}
        self._call("create")

    def reset(self, *, marker: str) -> None:
        self._call("reset")
        self.positions = dict(from_marker("t", marker))

    def _call(self, name: str) -> None:
        self.calls.append(name)
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure


def test_it_is_made_once_and_moved_each_time() -> None:
    group = FailingGroup()
    shown = ShownProgress(cast(Group, group))
    for positions in ({0: 3}, {0: 3}, {0: 5, 1: 2}, {0: 5, 1: 2}):
        shown.move_to("t", positions)
    assert (group.calls, group.positions) == (["create", "reset", "reset"], {0: 5, 1: 2})


@pytest.mark.parametrize("failures", [(Conflict("a queue group"),), (None, NoConnection("refused"))])
def test_a_failure_is_logged_and_the_next_one_is_tried_in_full(
    failures: tuple[Exception | None, ...], caplog: pytest.LogCaptureFixture
) -> None:
    group = FailingGroup(*failures)
    shown = ShownProgress(cast(Group, group))
    with caplog.at_level(logging.WARNING):
        shown.move_to("t", {0: 3})
    assert "topic t: group g does not show how far the query is" in caplog.text
    assert group.positions == {}
    shown.move_to("t", {0: 4})
    assert group.calls[-2:] == ["create", "reset"] and group.positions == {0: 4}
