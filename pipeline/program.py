"""Runs the job of a command line, and prints its errors as one line."""

import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

from braidmq.remedies import in_commands
from filer.errors import BraidError
from pipeline.commands import parse, run_job
from pipeline.errors import WrongUsage
from pipeline.interrupts import INTERRUPTS
from pipeline.output import discard_stdout, say

FAILED = 1
WRONG_USAGE = 2
_LOOK_SECONDS = 0.5


def run(arguments: Sequence[str]) -> int:
    """Run one job; returns the exit code."""
    try:
        options = parse(arguments)

        def go_on() -> str:
            return f"interrupted: go on with {shlex.join(['mq', 'pipeline', *arguments, *options.go_on])}"

        with INTERRUPTS.last_words(go_on):
            _run_in_thread(lambda: run_job(options))
    except WrongUsage as error:
        say(str(error))
        return WRONG_USAGE
    except BraidError as error:
        say(" ".join(in_commands(error).split()))
        return FAILED
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does.
        discard_stdout()
    return 0


def _run_in_thread(job: Callable[[], None]) -> None:
    """Run the job in a thread, so that Ctrl-C ends it at once.

    Python calls handlers of signals in this thread alone, and not before the call that it is in returns. The job's
    calls to Spark may take minutes.
    """
    ended: Future[None] = Future()

    def work() -> None:
        try:
            job()
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=work, name="job", daemon=True).start()
    # Not without an end: a signal that the kernel delivers to another thread, or right before this one falls asleep,
    # does not wake it.
    while not wait([ended], _LOOK_SECONDS).done:
        pass
    ended.result()
