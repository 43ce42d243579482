"""Which worker is given which tests: the last one those at the end of the list, and all of them what is left."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.two_ended_scheduling import TwoEndedScheduling

TESTS = [f"tests/test_{n}.py::test" for n in range(20)]
GROUP = [f"tests/test_group.py::test_{n}@group" for n in range(5)]


class FakeWorker:
    """Notes what it is given."""

    def __init__(self, number: int, workers: int) -> None:
        self.workerinput: dict[str, Any] = {"workerid": f"gw{number}", "workercount": workers}
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indexes: Sequence[int]) -> None:
        self.given += indexes

    def shutdown(self) -> None:
        self.shutting_down = True


class Run:
    """A run in which each test takes as long as any other."""

    def __init__(self, workers: int) -> None:
        options = SimpleNamespace(loadscopereorder=True)
        config = SimpleNamespace(getvalue=lambda name: ["popen"] * workers, option=options)
        self.collected = [*TESTS[:3], *GROUP, *TESTS[3:]]
        self.scheduling = TwoEndedScheduling(config, None)
        self.nodes: list[FakeWorker] = []
        self.done: dict[FakeWorker, list[str]] = {}
        for number in range(workers):
            self.join(FakeWorker(number, workers))
        self.scheduling.schedule()

    def join(self, node: FakeWorker) -> None:
        self.nodes.append(node)
        self.done[node] = []
        self.scheduling.add_node(node)
        self.scheduling.add_node_collection(node, self.collected)

    def step(self) -> bool:
        """Let each worker run a test, if it knows the next one or that there is none. Whether any did."""
        ready = [node for node in self.nodes if len(node.given) > len(self.done[node]) + (not node.shutting_down)]
        for node in ready:
            index = node.given[len(self.done[node])]
            self.done[node].append(self.collected[index])
            self.scheduling.mark_test_complete(node, index)
        return bool(ready)

    def crash(self, node: FakeWorker) -> str | None:
        """End a worker within a test, and have another one in its place."""
        self.nodes.remove(node)
        crashed_in = self.scheduling.remove_node(node)
        self.join(FakeWorker(len(self.done), node.workerinput["workercount"]))
        self.scheduling.schedule()
        return crashed_in

    def to_the_end(self) -> list[list[str]]:
        """What each worker ran."""
        while self.step():
            pass
        assert self.scheduling.tests_finished
        for node in self.nodes:
            node.shutdown()
        while self.step():
            pass
        return list(self.done.values())


def run(workers: int) -> list[list[str]]:
    return Run(workers).to_the_end()


def test_the_last_worker_begins_at_the_end() -> None:
    *others, last = run(4)
    assert last == TESTS[: -len(last) - 1 : -1]
    assert others[0][: len(GROUP)] == GROUP
    assert [others[1][0], others[2][0]] == TESTS[:2]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_each_test_is_given_to_one_worker(workers: int) -> None:
    given = [test for tests in run(workers) for test in tests]
    assert sorted(given) == sorted([*TESTS, *GROUP])


def test_the_suite_begins_with_what_waits_and_ends_with_what_computes(pytestconfig: pytest.Config) -> None:
    first, *_, last = pytestconfig.getini("testpaths")
    assert (first, last) == ("tests/cluster", "tests/unit")


def test_two_workers_both_begin_at_the_beginning() -> None:
    first, second = run(2)
    assert (first[: len(GROUP)], second[0]) == (GROUP, TESTS[0])


@pytest.mark.parametrize("crashing", range(4))
@pytest.mark.parametrize("steps", range(7))
def test_what_a_crashed_worker_has_not_run_is_run_by_others(crashing: int, steps: int) -> None:
    under_way = Run(4)
    for _ in range(steps):
        under_way.step()
    node = under_way.nodes[crashing]
    left = [under_way.collected[index] for index in node.given[len(under_way.done[node]) :]]
    crashed_in = under_way.crash(node)
    assert crashed_in == (left[0] if left else None)
    ran = under_way.to_the_end()
    assert sorted(test for tests in ran for test in tests) == sorted([*TESTS, *GROUP])
    assert not left or ran[-1], "the worker in its place was given no test"
