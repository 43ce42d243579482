import json

import pytest

from braidmq import PositionRange, Published
from filer.clock import ManualClock
from mq.cli.publishing.publish_summary import PublishSummary


def published(*ranges: tuple[int, int, int]) -> Published:
    positions = tuple(PositionRange(*each) for each in ranges)
    return Published(sum(each.count for each in positions), positions)


async def test_ranges_that_follow_each_other_become_one(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    summary = PublishSummary(clock)
    summary.add(published((1, 0, 5), (0, 10, 5)))
    summary.add(published((0, 15, 5), (1, 7, 3)))
    await clock.advance(2)
    summary.show(as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "count": 18,
        "seconds": 2.0,
        "positions": [
            {"segment": 0, "offset": 10, "count": 10},
            {"segment": 1, "offset": 0, "count": 5},
            {"segment": 1, "offset": 7, "count": 3},
        ],
    }
    summary.show(as_json=False)
    told = capsys.readouterr().out
    assert told.startswith("published 18 messages in 2.0 s (9 per second)\n")
    assert [line.split() for line in told.splitlines()[3:]] == [
        ["0", "10", "19", "10"],
        ["1", "0", "4", "5"],
        ["1", "7", "9", "3"],
    ]


def test_one_message_is_told_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    summary = PublishSummary(ManualClock())
    summary.add(published((3, 17, 1)))
    summary.show(as_json=False)
    assert capsys.readouterr().out == "published 1 message at 3-17\n"


def test_errors_tell_what_is_stored_nevertheless() -> None:
    summary = PublishSummary(ManualClock())
    assert summary.stored_so_far(0) == ""
    summary.add(published((0, 0, 1)))
    assert summary.stored_so_far(0) == "; 1 message was stored before that: --skip 1 leaves out what is stored"
    summary.add(published((0, 1, 1999)))
    assert summary.stored_so_far(5) == "; 2,000 messages were stored before that: --skip 2005 leaves out what is stored"
