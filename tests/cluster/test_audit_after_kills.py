"""A broker that is killed again and again loses no record of what it had answered."""

import threading
from collections.abc import Iterator

import duckdb
import httpx
import pytest

from filer import keys
from tests.support.broker.broker_process import BrokerProcess
from tests.support.store.quick_folder import quick_folder

KILLS, ANSWERED_BETWEEN = 3, 40
WAIT_SECONDS = 60

pytestmark = pytest.mark.timeout(120)


class Caller:
    """Makes topics, and asks for what is refused, one after the other; notes what was answered."""

    def __init__(self) -> None:
        self.url = ""
        self.answered: list[tuple[str, str]] = []
        self._count = 0
        self._enough = threading.Event()

    def run(self) -> None:
        """Go on until the broker is gone."""
        with httpx.Client(base_url=self.url, timeout=WAIT_SECONDS, trust_env=False) as client:
            try:
                for request in self._requests():
                    status = client.request(*request).status_code
                    self.answered.append((f"{request[0]} {request[1]}", "refused" if status == 403 else "done"))
                    if len(self.answered) % ANSWERED_BETWEEN == 0:
                        self._enough.set()
            except httpx.TransportError:
                return

    def _requests(self) -> Iterator[tuple[str, str]]:
        while True:
            self._count += 1
            yield "PUT", f"/v1/topics/t{self._count}"
            yield "DELETE", f"/v1/topics/{keys.AUDIT_TOPIC}"

    def await_answers(self) -> None:
        """Return once some more were answered."""
        assert self._enough.wait(WAIT_SECONDS)
        self._enough.clear()


def test_what_was_answered_is_in_the_trail_and_duckdb_reads_it() -> None:
    caller = Caller()
    with quick_folder() as data, BrokerProcess(data=data, args=("--audit", "on")) as broker:
        for _ in range(KILLS):
            caller.url = broker.url
            calling = threading.Thread(target=caller.run)
            calling.start()
            caller.await_answers()
            broker.kill()
            calling.join(WAIT_SECONDS)
            assert not calling.is_alive()
            broker.start()
        files = data / keys.topic_folder(keys.AUDIT_TOPIC) / "segments/*/*.parquet"
        query = f"SELECT value->>'request', value->>'outcome', sum((value->>'count')::int) FROM '{files}' GROUP BY ALL"
        recorded = {(request, outcome): count for request, outcome, count in duckdb.sql(query).fetchall()}
    assert len(caller.answered) >= KILLS * ANSWERED_BETWEEN
    for request in set(caller.answered):
        # The one that a kill has cut off may be recorded besides.
        assert caller.answered.count(request) <= recorded.get(request, 0) <= caller.answered.count(request) + KILLS
