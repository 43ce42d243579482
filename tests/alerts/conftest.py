"""A Prometheus for each test, and what of alerts it has to see."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.alerts.desk import Desk
from tests.support.monitoring.prometheus import Prometheus
from tests.support.monitoring.short_rules import WINDOW_SECONDS, short_rules
from tests.support.process import processes

OpenDesk = Callable[..., Desk]


@pytest.fixture
def free_port() -> int:
    """For a broker that is started again: clients and Prometheus find it where it was."""
    return processes.free_port()


@pytest.fixture
def open_desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenDesk]:
    """Open a desk with these thresholds; at the end, all alerts of the test's mark have fired and gone."""
    (mark,) = request.node.iter_markers("alerts")
    desks: list[Desk] = []
    with contextlib.ExitStack() as stack:

        def open_(
            environment: Mapping[str, str],
            thresholds: Mapping[str, float] = {},
            *,
            window_seconds: int = WINDOW_SECONDS,
            token: str = "",
            ca: Path | None = None,
        ) -> Desk:
            rules = short_rules(thresholds, window_seconds=window_seconds)
            desks.append(Desk(stack.enter_context(Prometheus(tmp_path, rules, token=token, ca=ca)), environment))
            return desks[-1]

        yield open_
    if not request.session.testsfailed:
        assert set(mark.args) == {name for desk in desks for name in desk.fired & desk.ended}
