"""`python -m pipeline JOB …`: run a job and print its errors as one line. `mq pipeline` and spark-submit start it."""

import os
import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from braidmq.command_words import in_command_words
from filer.errors import BraidError
from pipeline.commands import parse, run
from pipeline.errors import WrongUsage
from pipeline.output import discard_stdout, say

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run one job; returns the exit code. After `INTERRUPTED` the job may still run in its thread."""
    go_on: tuple[str, ...] = ()
    try:
        options = parse(arguments)
        try:
            _run_in_thread(lambda: run(options))
        except KeyboardInterrupt:
            go_on = options.go_on
            raise
    except WrongUsage as error:
        say(str(error))
        return WRONG_USAGE
    except BraidError as error:
        say(" ".join(in_command_words(str(error)).split()))
        return FAILED
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does.
        discard_stdout()
    except KeyboardInterrupt:
        say(f"interrupted: go on with {shlex.join(['mq', 'pipeline', *arguments, *go_on])}")
        return INTERRUPTED
    return 0


def _run_in_thread(job: Callable[[], None]) -> None:
    """Run the job in a thread, so that Ctrl-C interrupts only this wait.

    In the middle of a call to Spark it would break the connection, which Spark's libraries report at length.
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
    ended.result()


def _end(code: int) -> None:
    """End the process. If the job still runs, it ends with it, and so do Spark's processes on this machine."""
    if code == INTERRUPTED:
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _end(main(sys.argv[1:]))
