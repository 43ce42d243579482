"""Standard streams that are closed, full, or have lost their reader."""

import os
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.broker.broker_process import BrokerProcess, broker_environment
from tests.support.process.processes import end_with_us, free_port, until


def mq(arguments: list[str], streams: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command whose streams a shell has redirected."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "mq.cli.main", *arguments],
        env=broker_environment({}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def lost() -> int:
    """A pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return write


def without_reader(arguments: list[str]) -> tuple[int, str]:
    """The exit code and stderr of a command whose stdout is a pipe that nobody reads any more."""
    with open(lost(), "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "mq.cli.main", *arguments],
            env=broker_environment({}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    return done.returncode, done.stderr


COMMANDS = [["--help"], ["topic", "--help"], ["--version"], ["config", "show"], ["topic", "list"], ["subscribe"]]


@pytest.fixture
def arguments(request: pytest.FixtureRequest, broker: BrokerProcess, topic: str) -> list[str]:
    """The command line of a case, with its topic and broker."""
    given: list[str] = request.param
    if given == ["subscribe"]:
        url = ["--url", broker.url]
        assert mq(["topic", "create", topic, *url], "")[0] == 0
        assert mq(["publish", topic, "a", *url], "")[0] == 0
        return ["subscribe", topic, "--from", "earliest", "--limit", "1", *url]
    return [*given, "--url", broker.url] if given == ["topic", "list"] else given


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join, indirect=True)
def test_a_reader_that_has_seen_enough_is_no_failure(arguments: list[str]) -> None:
    assert without_reader(arguments) == (0, "")


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join, indirect=True)
@pytest.mark.parametrize(
    ("streams", "reason"), [(">&-", "it is closed"), (">/dev/full", "No space left on device")], ids=["closed", "full"]
)
def test_output_that_goes_nowhere_is_a_failure(arguments: list[str], streams: str, reason: str) -> None:
    assert mq(arguments, streams) == (1, "", f"mq: cannot write to stdout: {reason}\n")


def test_all_streams_may_be_closed(broker: BrokerProcess) -> None:
    assert mq(["topic", "list", "--url", broker.url], "<&- >&- 2>&-") == (1, "", "")
    assert mq(["topic", "list", "--json", "--url", broker.url], "<&- 2>&-")[0] == 0
    assert mq(["topic", "lits", "--url", broker.url], "2>&-") == (2, "", "")


def test_input_that_is_closed_is_no_empty_input(broker: BrokerProcess, topic: str) -> None:
    assert mq(["topic", "create", topic, "--url", broker.url], "")[0] == 0
    assert mq(["publish", topic, "--url", broker.url], "<&-") == (1, "", "mq: cannot read from stdin: it is closed\n")


@pytest.mark.parametrize("stdin", ["<&-", "< /dev/null"])
def test_a_question_without_an_answer_does_nothing_and_tells_how_to_go_without(
    stdin: str, broker: BrokerProcess, topic: str
) -> None:
    assert mq(["topic", "create", topic, "--url", broker.url], "")[0] == 0
    code, out, err = mq(["topic", "delete", topic, "--url", broker.url], stdin)
    assert (code, out.strip()) == (1, "")
    assert err.splitlines()[-1] == "mq: stdin gives no answer, so nothing was done: --yes does it without asking"
    assert mq(["topic", "describe", topic, "--url", broker.url], "")[0] == 0


@pytest.mark.parametrize("stdout", ["closed", "full", "without a reader"])
def test_a_broker_serves_whether_or_not_its_message_is_read(stdout: str, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    output = lost() if stdout == "without a reader" else os.open("/dev/full", os.O_WRONLY)
    broker = subprocess.Popen(
        [sys.executable, "-m", "mq.cli.main", "serve", "--data", str(tmp_path / "data"), "--port", str(port)],
        env=broker_environment({}),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        preexec_fn=(lambda: os.close(1)) if stdout == "closed" else None,
    )
    end_with_us(broker.pid)
    os.close(output)
    with broker:
        try:
            until(lambda: answers(url))
            broker.terminate()
            _, log = broker.communicate(timeout=30)
        finally:
            broker.kill()
    assert broker.returncode == 0
    assert (b"serving all the same" in log) == (stdout != "without a reader")


def answers(url: str) -> bool:
    """Whether a broker takes requests there."""
    with suppress(OSError), urllib.request.urlopen(f"{url}/healthz") as answer:
        return bool(answer.status == 200)
    return False
