import pytest

from filer.stores.decorators.store_health import Stall
from mq.base.readiness import MOST_PROBLEMS, readiness


def stall(cause: str, operation: str = "create") -> Stall:
    return Stall(operation, "topics/t/1", 3.14, 2, cause, "no space")


@pytest.mark.parametrize(
    ("started", "draining", "stalls", "own_store", "ready", "status"),
    [
        (False, False, [], False, False, "starting"),
        (False, False, [stall("timeout")], True, False, "starting"),
        (True, True, [], False, False, "draining"),
        (True, True, [stall("ENOSPC")], True, False, "draining"),
        (True, False, [], True, True, "ok"),
        (True, False, [stall("503")], False, True, "degraded"),
        (True, False, [stall("ENOSPC")], True, False, "degraded"),
        (True, False, [stall("503"), stall("EMFILE")], False, False, "degraded"),
    ],
)
def test_a_broker_is_taken_out_only_where_others_are_better_off(
    started: bool, draining: bool, stalls: list[Stall], own_store: bool, ready: bool, status: str
) -> None:
    told = readiness(started=started, draining=draining, stalls=stalls, own_store=own_store)
    assert (told.ready, told.status) == (ready, status)


def test_a_clock_that_is_off_is_told_and_takes_no_broker_out() -> None:
    told = readiness(started=True, draining=False, stalls=[], own_store=True, clock="7200 s behind")
    assert told.document() == {
        "ready": True,
        "status": "degraded",
        "problems": [{"type": "clock-off", "detail": "7200 s behind"}],
    }


def test_a_lost_zookeeper_is_told_and_takes_no_broker_out() -> None:
    """Each goes on to store and to acknowledge, and mostly all have lost it."""
    told = readiness(started=True, draining=False, stalls=[], own_store=False, zookeeper="31 s", clock="off")
    assert told.document() == {
        "ready": True,
        "status": "degraded",
        "problems": [{"type": "zookeeper-lost", "detail": "31 s"}, {"type": "clock-off", "detail": "off"}],
    }


def test_the_document_names_each_problem() -> None:
    told = readiness(started=True, draining=False, stalls=[stall("ENOSPC")] * (2 * MOST_PROBLEMS), own_store=True)
    document = told.document()
    assert len(document["problems"]) == MOST_PROBLEMS
    assert document["problems"][0] == {
        "type": "store-stalled",
        "operation": "create",
        "key": "topics/t/1",
        "seconds": 3.1,
        "tries": 2,
        "cause": "ENOSPC",
        "detail": "no space",
    }
