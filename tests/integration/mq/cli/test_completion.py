"""Shells complete names of topics and brokers, and wait for nobody."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker.broker_process import BrokerProcess, broker_environment

Mq = Callable[..., str]
SHELLS = ["bash", "zsh", "fish"]
BUSY_SECONDS = 30.0
# How a shell asks does not depend on the command, nor what is completed on the shell.
ASKED = [
    *(("bash", command) for command in ("topic describe", "subscribe", "publish", "files ls", "verify")),
    *((shell, "topic describe") for shell in SHELLS[1:]),
]


def asked(shell: str, line: str) -> dict[str, str]:
    """The variables by which a shell asks for what may follow at the end of a line."""
    if shell == "bash":
        words = line.split()
        last = len(words) if line.endswith(" ") else len(words) - 1
        return {"_MQ_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(last)}
    return {
        "_MQ_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }


def completed(shell: str, line: str, url: str) -> str:
    """What a shell is told. Nothing may be said on stderr."""
    answer = subprocess.run(
        [sys.executable, "-c", "from mq.cli.main import main; main()"],
        env=broker_environment({"BRAIDMQ_URL": url, **asked(shell, line)}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.stderr == ""
    return answer.stdout


def completed_in_time(shell: str, line: str, url: str) -> str:
    """What a shell is told by a broker. One that takes more than a second, on a busy machine, is asked again."""
    deadline = time.monotonic() + BUSY_SECONDS
    while not (told := completed(shell, line, url)).strip():
        assert time.monotonic() < deadline, "nothing is completed"
    return told


@pytest.mark.parametrize(("shell", "command"), ASKED)
def test_topics_are_completed(shell: str, command: str, mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    mq("topic", "create", f"{topic}-more")
    mq("topic", "create", f"other-{topic}")
    told = completed_in_time(shell, f"mq {command} {topic[:-1]}", broker.url)
    assert topic in told and f"{topic}-more" in told and f"other-{topic}" not in told


def test_the_address_in_the_line_counts(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    line = f"mq topic describe --url {broker.url} {topic[:-1]}"
    assert completed_in_time("bash", line, "http://127.0.0.1:9").split() == [topic]


def test_brokers_are_completed(broker: BrokerProcess) -> None:
    assert completed_in_time("bash", "mq cluster drain bro", broker.url).split() == ["broker"]


def test_groups_of_the_topic_are_completed(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    for group in ("billing", "books", "reports"):
        mq("group", "create", topic, group)
    assert completed_in_time("bash", f"mq group describe {topic} b", broker.url).split() == ["billing", "books"]
    assert completed_in_time("bash", f"mq work {topic} --group r", broker.url).split() == ["reports"]


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_broker_there_is_silence(shell: str) -> None:
    assert completed(shell, "mq topic describe d", "http://127.0.0.1:9").strip() in ("", "_files")
    assert completed(shell, "mq topic describe d", "no address").strip() in ("", "_files")


@pytest.fixture
def mute() -> Iterator[str]:
    """The address of something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_broker_that_does_not_answer_is_not_waited_for(mute: str) -> None:
    began = time.monotonic()
    assert completed("bash", "mq topic describe d", mute).strip() == ""
    assert time.monotonic() - began < 15  # about 1.3 s, on a machine with nothing else to do


def test_commands_are_completed_without_a_broker() -> None:
    assert completed("bash", "mq topic d", "http://127.0.0.1:9").split() == ["describe", "delete"]
    assert "subscribe" in completed("bash", "mq ", "http://127.0.0.1:9").split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_script_for_bash_works_in_bash(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    folder = Path(sys.executable).parent
    words = f"mq topic describe {topic[:-1]}"
    script = (
        'eval "$(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 mq --show-completion bash)"\n'
        f"COMP_WORDS=({words}) COMP_CWORD=3 COMP_LINE='{words}' COMP_POINT={len(words)}\n"
        "function=$(complete -p mq | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
        "IFS=$'\\n' $function mq\necho \"${COMPREPLY[@]}\"\n"
    )
    environment = broker_environment({"BRAIDMQ_URL": broker.url})
    environment["PATH"] = f"{folder}{os.pathsep}{environment.get('PATH', os.environ['PATH'])}"
    answer = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (answer.stdout.split(), answer.stderr) == ([topic], "")
