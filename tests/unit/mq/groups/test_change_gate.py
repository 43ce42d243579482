"""Changes of groups beside each other, and beside a checkpoint."""

import asyncio

import pytest

from filer.clock import settle
from mq.groups.change_gate import ChangeGate


class Steps:
    """Tasks in a gate, each of which stays inside until it is let go."""

    def __init__(self) -> None:
        self.gate = ChangeGate()
        self.inside: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._leave: dict[str, asyncio.Event] = {}

    async def begin(self, name: str, key: str | None) -> None:
        """Begin a change of that group, or a checkpoint."""
        leave = self._leave[name] = asyncio.Event()

        async def stay() -> None:
            async with self.gate.checkpoint() if key is None else self.gate.change(key):
                self.inside.append(name)
                try:
                    await leave.wait()
                finally:
                    self.inside.remove(name)

        self.tasks[name] = asyncio.create_task(stay())
        await settle()

    async def end(self, name: str) -> None:
        self._leave[name].set()
        await settle()


@pytest.fixture
async def steps() -> Steps:
    return Steps()


async def test_each_group_is_changed_by_one_at_a_time_beside_others(steps: Steps) -> None:
    for name, key in (("a1", "a"), ("b1", "b"), ("a2", "a")):
        await steps.begin(name, key)
    assert steps.inside == ["a1", "b1"] and steps.gate.inside == 3
    await steps.end("a1")
    assert steps.inside == ["b1", "a2"]
    for name in ("b1", "a2"):
        await steps.end(name)
    assert steps.gate.inside == 0


async def test_a_checkpoint_is_alone(steps: Steps) -> None:
    await steps.begin("a1", "a")
    await steps.begin("checkpoint", None)
    await steps.begin("b1", "b")
    assert steps.inside == ["a1"]
    await steps.end("a1")
    assert steps.inside == ["checkpoint"]
    await steps.end("checkpoint")
    assert steps.inside == ["b1"]
    await steps.end("b1")


@pytest.mark.parametrize("name", ["a1", "a2", "checkpoint"])
async def test_whoever_gives_up_keeps_nobody_waiting(steps: Steps, name: str) -> None:
    for each, key in (("a1", "a"), ("a2", "a"), ("checkpoint", None), ("a3", "a")):
        await steps.begin(each, key)
    steps.tasks[name].cancel()
    await settle()
    for each in ("a1", "a2", "checkpoint", "a3"):
        await steps.end(each)
    assert [task.done() for task in steps.tasks.values()] == [True] * 4
    assert steps.gate.inside == 0
