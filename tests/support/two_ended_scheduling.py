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
    """`--dist loadgroup`, except that the last worker takes what comes last."""

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
