"""How the whole suite is spread over its workers, so that processors are never idle for long.

Tests of clusters and Spark come first and wait half of their time: for sessions to end, for processes to start. The
last tests, those of units, only compute. So the last worker begins at the end of the list, at a lower priority: it
computes while the others wait, and disturbs none of their time-outs. Where the two ends meet all workers help.
"""

import os
from collections import OrderedDict
from typing import Any

from xdist.scheduler import LoadGroupScheduling

FEWEST_WORKERS = 3
"""With fewer there are none that wait enough to leave a processor to another one."""
LOWER_PRIORITY = 5


class TwoEndedScheduling(LoadGroupScheduling):  # type: ignore[misc]  # xdist tells no types
    """`--dist loadgroup`, except that the last worker takes what comes last, and that a crashed worker stops nobody."""

    def remove_node(self, node: Any) -> str | None:
        """Forget a worker, and queue the tests that a crashed one has not run. Returns the test it crashed in."""
        # The base class queues again what is done as well. Who is given a unit in which nothing is left to run has
        # nothing to report, so it is never given another one: all workers would wait until the run is killed.
        units: dict[str, dict[str, bool]] = self.assigned_work[node]
        self.assigned_work[node] = {scope: unit for scope, unit in units.items() if not all(unit.values())}
        crashed_in: str | None = super().remove_node(node)
        return crashed_in

    def schedule(self) -> None:
        """Give tests to all who have few: at the beginning, and when a worker comes in place of a crashed one."""
        super().schedule()
        # A worker begins a test when it knows the next one, and the base class gives a new worker one only.
        for node in self.nodes:
            self._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        # Popped from the front of the queue by the base class, whoever asks.
        queue: OrderedDict[str, dict[str, bool]] = self.workqueue
        if queue and _is_last(node.workerinput["workerid"], node.workerinput["workercount"]):
            queue.move_to_end(next(reversed(queue)), last=False)
        super()._assign_work_unit(node)


def lower_priority_of_last_worker() -> None:
    """Lower the priority of this process if it is the last worker."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
    if _is_last(worker, workers):
        os.nice(LOWER_PRIORITY)


def _is_last(worker: str, workers: int) -> bool:
    return workers >= FEWEST_WORKERS and worker == f"gw{workers - 1}"
