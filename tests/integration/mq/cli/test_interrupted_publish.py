"""Ctrl-C while `mq publish` runs: it tells what is stored, and the command that it prints goes on behind that."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker.broker_process import BrokerProcess, broker_environment
from tests.support.process.mq import MqProcess, mq_process

Mq = Callable[..., str]


def first_lines(process: MqProcess, broker: BrokerProcess, topic: str, lines: bytes) -> None:
    """Publish these lines, and return once readers get them."""
    process.write(lines)
    count = str(lines.count(b"\n"))
    with mq_process("subscribe", topic, "--from", "earliest", "--limit", count, "--url", broker.url) as reader:
        assert reader.stdout() == lines


def test_the_printed_command_goes_on_where_it_stopped(
    mq: Mq, broker: BrokerProcess, values: Callable[[str], list[str]], topic: str
) -> None:
    mq("topic", "create", topic)
    with mq_process("publish", topic, "--url", broker.url) as publisher:
        first_lines(publisher, broker, topic, b"1\n2\n3\n")
        publisher.interrupt()
        assert publisher.wait(20) == 130
        said = publisher.stderr().decode()
        assert publisher.stdout() == b""
    assert said.startswith("mq: interrupted: 3 messages were stored; go on with the same input: mq publish ")
    assert said.endswith(" --skip 3\n") and said.count("\n") == 1
    program, *arguments = shlex.split(said.partition("same input: ")[2])
    assert program == "mq"
    subprocess.run(
        [sys.executable, "-m", "mq.cli.main", *arguments],
        env=broker_environment({}),
        input=b"1\n2\n3\n4\n5\n",
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert values(topic) == ["1", "2", "3", "4", "5"]


def test_without_an_answer_it_says_what_is_not_known(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        with mq_process("topic", "create", "t", "--url", broker.url) as creator:
            assert creator.wait(60) == 0
        with mq_process("publish", "t", "--url", broker.url) as publisher:
            first_lines(publisher, broker, "t", b"1\n2\n")
            broker.stop()
            publisher.write(b"3\n")
            assert b"waiting for an answer" in publisher.stderr_line()
            publisher.interrupt()
            assert b"about 1 message;" in publisher.stderr_line()
            publisher.interrupt()
            assert publisher.wait(20) == 130
            lines = [line for line in publisher.stderr().splitlines() if b"interrupted" in line]
        broker.process.send_signal(signal.SIGCONT)
    (said,) = lines
    assert said.startswith(
        b"mq: interrupted: 2 messages were stored for certain, and 1 more message may or may not be stored "
        b"(--skip 3 leaves them out); go on with the same input: mq publish t "
    )
    assert said.endswith(b" --skip 2")


def test_a_publish_that_is_ended_by_sigterm_tells_the_same(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    with mq_process("publish", topic, "--url", broker.url) as publisher:
        first_lines(publisher, broker, topic, b"1\n2\n")
        publisher.terminate()
        assert publisher.wait(20) == 143
        said = publisher.stderr().decode()
    assert said.startswith("mq: interrupted: 2 messages were stored; go on with the same input: mq publish ")
    assert said.endswith(" --skip 2\n") and said.count("\n") == 1


def test_skipping_goes_over_files_of_all_kinds(
    mq: Mq, values: Callable[[str], list[str]], topic: str, tmp_path: Path
) -> None:
    mq("topic", "create", topic)
    (tmp_path / "a.txt").write_text("1\n2\n")
    (tmp_path / "b.json").write_text("[3]")
    (tmp_path / "c.csv").write_text("v\n4\n5\n")
    files = [word for name in ("a.txt", "b.json", "c.csv") for word in ("--file", str(tmp_path / name))]
    assert "would publish 1 message " in mq("publish", topic, *files, "--skip", "4", "--dry-run")
    mq("publish", topic, *files, "--skip", "4")
    mq("publish", topic, *files, "--skip", "1")
    mq("publish", topic, *files, "--skip", "5")
    assert values(topic) == ['{"v":5}', "2", "[3]", '{"v":4}', '{"v":5}']


def test_skipping_more_than_there_is_fails(mq: Mq, mq_fails: Mq, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    (tmp_path / "a.txt").write_text("1\n2\n")
    assert "--skip is 3, and the input has only 2 messages" in mq_fails(
        "publish", topic, "--file", str(tmp_path / "a.txt"), "--skip", "3"
    )


@pytest.mark.parametrize("arguments", [["topic", "list"], ["publish", "t", "a"]], ids=lambda words: words[0])
def test_an_interruption_has_no_stack_trace(arguments: list[str], tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        broker.stop()
        with mq_process(*arguments, "--url", broker.url) as process:
            process.stderr_line()
            process.interrupt()
            assert process.wait(20) == 130
            assert b"Traceback" not in process.stderr()
