"""What a broker's process sets for itself before it serves."""

import sys
from collections.abc import Iterator

import pytest

from filer.clock import ManualClock
from mq.base.settings import BrokerSettings
from mq.process import server
from mq.process.listen import CannotListen
from mq.process.log_output import LimitedHandler

LONGEST_SECONDS = 0.0001


@pytest.fixture(autouse=True)
def interval_restored() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_threads_that_store_wait_for_the_interpreter_for_a_tenth_of_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A put is many short calls of a thread: each waits so long behind a busy event loop, and publishers with it."""

    def taken(host: str, port: int) -> None:
        raise CannotListen("the port is taken")

    for name in ("choose_memory_pool", "glibc_heap", "keep_pandas_out"):
        monkeypatch.setattr(server, name, lambda: None)
    monkeypatch.setattr(server, "bind", taken)
    with pytest.raises(CannotListen):
        server.serve(BrokerSettings(), lambda _: None, LimitedHandler(sys.stderr, ManualClock()))
    assert sys.getswitchinterval() == pytest.approx(LONGEST_SECONDS)
