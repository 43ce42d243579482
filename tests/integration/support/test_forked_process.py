"""A forked process is what an interpreter of its own would be: its surroundings, its end, its parent's end."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cluster.local_cluster import alive
from tests.support.process.forked_process import ForkedProcess
from tests.support.process.processes import child_environment, until

# Also where it is what runs.
MODULE = "tests.integration.support.test_forked_process"
SECONDS = 20.0


def start(*arguments: str, **environment: str) -> ForkedProcess:
    return ForkedProcess(MODULE, arguments, env=child_environment() | environment)


def said(process: ForkedProcess) -> tuple[int, str, str]:
    """Its exit code, and all that it has printed."""
    assert process.stderr is not None
    with process.stdout as out, process.stderr as err:
        return process.wait(SECONDS), out.read(), err.read()


def test_it_has_its_own_arguments_environment_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = said(start("tell", "A_NAME", A_NAME="a value"))
    assert (code, err) == (0, "")
    assert out.splitlines() == ["['tell', 'A_NAME']", "a value", str(tmp_path), "''"]
    assert said(start("tell", "A_NAME"))[1].splitlines()[1] == "None"


def test_what_is_changed_in_one_is_not_changed_in_the_next() -> None:
    assert [said(start("change"))[1] for _ in range(2)] == ["None\n", "None\n"]


def test_exit_codes_and_errors() -> None:
    assert said(start("exit", "7")) == (7, "", "")
    code, _, err = said(start("no such task"))
    assert code == 1 and "KeyError: 'no such task'" in err
    code, _, err = said(ForkedProcess("tests.no_such_module", env=child_environment()))
    assert code == 1 and "tests.no_such_module" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_signals_end_it(number: signal.Signals) -> None:
    process = start("stay")
    assert process.stdout.readline() == "here\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(number)
    # Python answers to an interrupt with an exception, and ends itself by the signal.
    assert said(process)[0] == -number
    process.kill()


def test_it_is_waited_for_by_several_at_once() -> None:
    process = start("stay")
    assert process.stdout.readline() == "here\n"
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(process.wait, SECONDS) for _ in range(5)]
        process.kill()
        assert {each.result() for each in waiting} == {-signal.SIGKILL}
    said(process)


def test_many_at_once() -> None:
    with ThreadPoolExecutor() as pool:
        assert [code for code, _, _ in pool.map(lambda code: said(start("exit", str(code))), range(20))] == [*range(20)]


def test_the_server_ends_with_who_started_it() -> None:
    command = [sys.executable, "-m", MODULE, "start another"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as starter:
        assert starter.stdout is not None
        server = int(starter.stdout.readline())
        assert alive(server)
        starter.kill()
    until(lambda: not alive(server))


def tell(name: str) -> None:
    print(sys.argv[1:], os.environ.get(name), Path.cwd(), repr(sys.stdin.read()), sep="\n")


def change() -> None:
    print(socket.getdefaulttimeout())
    socket.setdefaulttimeout(SECONDS)


def stay() -> None:
    print("here", flush=True)
    while True:
        signal.pause()


def start_another() -> None:
    """Print who its parent is, and stay."""
    process = start("parent")
    print(process.stdout.readline().strip(), flush=True)
    stay()


TASKS = {
    "tell": tell,
    "change": change,
    "exit": lambda code: sys.exit(int(code)),
    "stay": stay,
    "parent": lambda: print(os.getppid()),
    "start another": start_another,
}

if __name__ == "__main__":
    TASKS[sys.argv[1]](*sys.argv[2:])
