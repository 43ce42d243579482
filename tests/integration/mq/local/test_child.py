"""Processes of a local cluster, one by one."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mq.local.child import LOG_END_LINES, ChildProcess, ProcessFailed, how_it_ended
from tests.support.cluster.local_cluster import alive
from tests.support.process.processes import child_environment, until


def shell(tmp_path: Path, command: str) -> ChildProcess:
    return ChildProcess("child", ["sh", "-c", command], tmp_path / "logs" / "child.log")


def test_its_output_is_logged_one_life_after_the_other(tmp_path: Path) -> None:
    child = shell(tmp_path, "echo $$; echo to stderr >&2; exit 3")
    assert not child.started and not child.running
    for _ in range(2):
        child.start()
        until(lambda: not child.running)
        assert child.returncode == 3
        assert child.output() == f"{child.pid}\nto stderr\n"
    assert child.log_end().count("to stderr") == 2


def test_the_end_of_a_long_log_is_its_last_lines(tmp_path: Path) -> None:
    child = shell(tmp_path, "seq 1 100000")
    child.start()
    until(lambda: not child.running)
    assert child.log_end().splitlines() == [str(number) for number in range(100001 - LOG_END_LINES, 100001)]


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    child = ChildProcess("child", [str(tmp_path / "nothing")], tmp_path / "log")
    with pytest.raises(ProcessFailed, match=r"child cannot be started: .*/nothing: No such file"):
        child.start()


def test_killing_ends_even_one_that_is_stopped(tmp_path: Path) -> None:
    child = shell(tmp_path, "exec sleep 1000")
    child.start()
    child.send(signal.SIGSTOP)
    child.kill()
    assert child.returncode == -signal.SIGKILL and how_it_ended(-signal.SIGKILL) == "signal SIGKILL"
    child.kill()


def test_it_does_not_get_the_signals_of_the_terminal(tmp_path: Path) -> None:
    child = shell(tmp_path, "cut -d' ' -f5 /proc/$$/stat")
    child.start()
    until(lambda: not child.running)
    assert int(child.output()) == child.pid


def test_it_ends_with_its_parent_even_by_sigkill(tmp_path: Path) -> None:
    parent = (
        "import sys, time; from pathlib import Path; from mq.local.child import ChildProcess; "
        "child = ChildProcess('child', ['sleep', '1000'], Path(sys.argv[1])); child.start(); "
        "print(child.pid, flush=True); time.sleep(1000)"
    )
    command = [sys.executable, "-c", parent, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        assert alive(pid)
        running.kill()
    until(lambda: not alive(pid))
