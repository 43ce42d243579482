import asyncio

import pytest

from braidmq import OutcomeUnknown, PositionRange, Published
from filer.clock import ManualClock, settle
from mq.cli.failures import CommandFailed
from mq.cli.publishing.publish_summary import PublishSummary
from mq.cli.publishing.resuming import Skip, acknowledged, continued, interrupted

ARGUMENTS = ["publish", "t", "--file", "a b.csv"]
AFTER_3 = "mq publish t --file 'a b.csv' --skip 3"


def stored(count: int) -> Published:
    return Published(count, (PositionRange(0, 0, count),))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def summary(clock: ManualClock) -> PublishSummary:
    summary = PublishSummary(clock)
    summary.add(stored(10))
    return summary


def test_what_is_skipped_goes_over_all_batches() -> None:
    skip = Skip(5)
    assert [skip.take(count) for count in (3, 0, 4, 9)] == [3, 0, 2, 0]
    skip.check_all_taken()


def test_an_input_that_is_too_short_is_another_one() -> None:
    skip = Skip(5)
    skip.take(3)
    with pytest.raises(CommandFailed, match="--skip is 5, and the input has only 3 messages: nothing was published"):
        skip.check_all_taken()


@pytest.mark.parametrize("words", [[], ["--skip", "3"], ["--skip=3"], ["--skip", "1", "--skip", "2"]])
def test_the_command_to_go_on_with_has_one_skip(words: list[str]) -> None:
    assert continued(["--debug", *ARGUMENTS, *words], 7) == "mq --debug publish t --file 'a b.csv' --skip 7"


async def interrupt(
    publishing: "asyncio.Future[Published]", count: int, summary: PublishSummary, clock: ManualClock
) -> "asyncio.Task[None]":
    async def answer() -> Published:
        return await publishing

    task = asyncio.create_task(acknowledged(answer(), count, summary, clock))
    await settle()
    task.cancel()
    await settle()
    return task


async def test_after_an_interruption_the_answer_is_waited_for(
    summary: PublishSummary, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    publishing: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
    task = await interrupt(publishing, 5, summary, clock)
    assert not task.done() and capsys.readouterr().err == ""
    await clock.advance(1)
    assert capsys.readouterr().err == "mq: waiting for the answer about 5 messages; Ctrl-C again does not wait for it\n"
    publishing.set_result(stored(5))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert interrupted(summary, 100, ARGUMENTS) == (
        "interrupted: 15 messages were stored; go on with the same input: mq publish t --file 'a b.csv' --skip 115"
    )


async def test_an_answer_that_does_not_come_leaves_the_messages_under_way_uncertain(
    summary: PublishSummary, clock: ManualClock
) -> None:
    publishing: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
    task = await interrupt(publishing, 5, summary, clock)
    summary.advance(2, 5)
    await clock.advance(30)
    assert task.cancelled() and publishing.cancelled()
    assert interrupted(summary, 100, ARGUMENTS) == (
        "interrupted: 12 messages were stored for certain, and 3 more messages may or may not be stored "
        "(--skip 115 leaves them out); go on with the same input: mq publish t --file 'a b.csv' --skip 112"
    )


async def test_a_failure_after_the_interruption_leaves_them_uncertain_too(
    summary: PublishSummary, clock: ManualClock
) -> None:
    publishing: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
    task = await interrupt(publishing, 5, summary, clock)
    publishing.set_exception(OutcomeUnknown("lost"))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (summary.stored, summary.uncertain) == (10, 5)


def test_before_anything_is_stored(clock: ManualClock) -> None:
    summary = PublishSummary(clock)
    assert interrupted(summary, 0, ARGUMENTS) == "interrupted: nothing was stored"
    assert interrupted(summary, 3, ARGUMENTS).endswith("nothing was stored; go on with the same input: " + AFTER_3)
    summary.begin(2)
    assert interrupted(summary, 0, None) == (
        "interrupted: nothing was stored for certain, and 2 messages may or may not be stored"
    )
