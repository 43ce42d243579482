"""Which worker is given which tests: the last one those at the end of the list, and all of them what is left."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from tests.support.two_ended_scheduling import TwoEndedScheduling

TESTS = [f"tests/test_{n}.py::test" for n in range(20)]
GROUP = [f"tests/test_group.py::test_{n}@group" for n in range(5)]


class FakeWorker:
    """Notes what it is given."""

    def __init__(self, number: int, workers: int) -> None:
        self.workerinput = {"workerid": f"gw{number}", "workercount": workers}
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indexes: Sequence[int]) -> None:
        self.given += indexes

    def shutdown(self) -> None:
        self.shutting_down = True


def run(workers: int) -> list[list[str]]:
    """What each worker was given, if each test takes as long as any other."""
    config = SimpleNamespace(getvalue=lambda name: ["popen"] * workers, option=SimpleNamespace(loadscopereorder=True))
    scheduling = TwoEndedScheduling(config, None)
    nodes = [FakeWorker(number, workers) for number in range(workers)]
    collected = [*TESTS[:3], *GROUP, *TESTS[3:]]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, collected)
    scheduling.schedule()
    done = [0] * workers
    while any(count < len(node.given) for count, node in zip(done, nodes, strict=True)):
        for number, node in enumerate(nodes):
            if done[number] < len(node.given):
                done[number] += 1
                scheduling.mark_test_complete(node, node.given[done[number] - 1])
    return [[collected[index] for index in node.given] for node in nodes]


def test_the_last_worker_begins_at_the_end() -> None:
    *others, last = run(4)
    assert last == TESTS[: -len(last) - 1 : -1]
    assert others[0][: len(GROUP)] == GROUP
    assert [others[1][0], others[2][0]] == TESTS[:2]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_each_test_is_given_to_one_worker(workers: int) -> None:
    given = [test for tests in run(workers) for test in tests]
    assert sorted(given) == sorted([*TESTS, *GROUP])


def test_two_workers_both_begin_at_the_beginning() -> None:
    first, second = run(2)
    assert (first[: len(GROUP)], second[0]) == (GROUP, TESTS[0])
