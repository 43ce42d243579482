"""Commands whose broker is away: they say so, go on trying as long as they are told to, and go on when it is back."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.mq import mq, mq_process
from tests.support.process.processes import free_port


def test_a_publish_says_that_its_broker_is_away_and_goes_on(tmp_path: Path) -> None:
    port = free_port()
    with BrokerProcess(data=tmp_path / "data", port=port) as broker:
        mq("topic", "create", "t", "--url", broker.url)
        with mq_process("publish", "t", "--url", broker.url) as publisher:
            publisher.write(b"one\n")
            assert mq("subscribe", "t", "--from", "earliest", "--limit", "1", "--url", broker.url) == b"one\n"
            broker.kill()
            publisher.write(b"two\n")
            said = publisher.stderr_line()
            broker.start()
            publisher.end_input()
            assert publisher.wait(60) == 0
        assert said.startswith(f"mq: no answer from http://127.0.0.1:{port}: retrying, ".encode())
        assert mq("subscribe", "t", "--until-end", "--url", broker.url) == b"one\ntwo\n"


@pytest.mark.parametrize(
    "command",
    [["topic", "list"], ["publish", "t", "a"], ["subscribe", "t"], ["doctor"], ["cluster", "status"], ["verify", "t"]],
    ids=lambda words: words[0],
)
def test_time_to_try_is_given_by_an_option_also_where_nobody_has_answered(command: list[str]) -> None:
    began = time.monotonic()
    url = f"http://127.0.0.1:{free_port()}"
    with mq_process(*command, "--url", url, "--timeout", "6") as process:
        assert b"retrying" in process.stderr_line()
        assert process.wait(60) == 1
    assert time.monotonic() - began > 3


def test_brokers_that_answer_nothing_together_take_no_longer_than_the_option_says() -> None:
    with ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        url = ",".join(f"http://127.0.0.1:{each.getsockname()[1]}" for each in listening)
        began = time.monotonic()
        commands = [["topic", "list"], ["publish", "t", "a"], ["subscribe", "t"], ["doctor"]]
        processes = [stack.enter_context(mq_process(*each, "--url", url, "--timeout", "15")) for each in commands]
        assert [each.wait(90) for each in processes] == [1] * len(commands)
        # A share of it for each broker; it was three times as long. The rest is for their start on a busy machine.
        assert 15 <= time.monotonic() - began < 40


def test_a_broker_that_takes_requests_and_answers_none_is_given_up_too(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        broker.stop()
        with mq_process("topic", "list", "--url", broker.url, "--timeout", "1") as process:
            assert process.wait(20) == 1
            assert b"no answer in time" in process.stderr_line()


@pytest.mark.parametrize(
    "command",
    [["work", "t", "--group", "g", "--idle", "1s"], ["subscribe", "t", "--group", "s", "--idle", "1s"]],
    ids=["worker", "member"],
)
def test_a_consumer_that_starts_before_its_broker_waits_and_says_so(command: list[str], tmp_path: Path) -> None:
    port = free_port()
    with BrokerProcess(data=tmp_path / "data", port=port) as broker:
        mq("topic", "create", "t", "--url", broker.url)
        mq("publish", "t", "a", "--url", broker.url)
        broker.kill()
        works = ["--", "cat"] if command[0] == "work" else []
        with mq_process(*command, "--url", broker.url, *works) as consumer:
            assert consumer.stderr_line().startswith(f"mq: no answer from {broker.url}: retrying, ".encode())
            broker.start()
            assert consumer.wait(60) == 0
            assert consumer.stdout().strip() == b"a"
