"""Ctrl-C at each place in the life of a job: 130, no stack trace, and the command that goes on once it is known."""

import signal

import pytest

from tests.support.process import interrupted_program

_STAY = "threading.Event().wait()"
_GO_ON = "mq: interrupted: go on with mq pipeline skew t --parts 3\n"
_PROGRAM = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
{prepare}
sys.argv[:] = ["mq", *sys.argv[1:]]
main()
"""
# A job that does what is given.
_JOB = """
import pipeline.program
from pipeline.__main__ import main
def job(options):
    {does}
pipeline.program.run_job = job
"""
# Ctrl-C when a module is about to be imported.
_AT_IMPORT = interrupted_program.AT_IMPORT + "from pipeline.__main__ import main\n"
# Ctrl-C when `mq` becomes the job.
_AS_IT_BECOMES_THE_JOB = """
from mq.cli.main import main
def become(*given, _before=os.execve):
    signal.raise_signal(signal.SIGINT)
    os.write(1, b"goes on")
    _before(*given)
os.execve = become
"""


def interrupted(prepare: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a job that interrupts itself."""
    return interrupted_program.interrupted(_PROGRAM.format(prepare=prepare), *arguments)


@pytest.mark.parametrize("place", ["pipeline.interrupts", "pipeline.program", "pipeline.skew.skew_options"])
def test_while_it_is_imported(place: str) -> None:
    assert interrupted(_AT_IMPORT.format(place=place), "skew", "t") == (130, "", "")


@pytest.mark.parametrize(
    "does",
    [
        f"os.kill(os.getpid(), signal.SIGINT); {_STAY}",
        # The main thread is asleep by then, and sleeps on: it is not the one that the kernel chose.
        f"threading.Event().wait(0.2); signal.pthread_kill(threading.get_ident(), signal.SIGINT); {_STAY}",
    ],
    ids=["the main thread is given the signal", "another thread is given the signal"],
)
def test_while_it_runs(does: str) -> None:
    assert interrupted(_JOB.format(does=does), "skew", "t", "--parts", "3") == (130, "", _GO_ON)


def test_as_it_ends() -> None:
    prepare = _JOB.format(does="import atexit; atexit.register(signal.raise_signal, signal.SIGINT)")
    assert interrupted(prepare, "skew", "t") == (0, "", "")


def test_as_mq_becomes_the_job() -> None:
    """Python would lose it here, or show a stack trace when it starts again."""
    assert interrupted(_AS_IT_BECOMES_THE_JOB, "pipeline", "skew", "t") == (130, "goes on", "")


def test_in_the_background_it_goes_on() -> None:
    """A shell has its background jobs ignore Ctrl-C, which is meant for the one in front."""
    prepare = _JOB.format(does="os.kill(os.getpid(), signal.SIGINT)")
    ignored = f"signal.signal({int(signal.SIGINT)}, signal.SIG_IGN)\n{prepare}"
    assert interrupted(ignored, "skew", "t") == (0, "", "")
