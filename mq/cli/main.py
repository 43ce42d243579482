"""The program `mq`: what has to hold before anything else is imported, and after the last line of a command.

Ctrl-C may come while modules are imported, which takes most of the time of a short command. Python would then show
where it was. So this module imports next to nothing, and the rest only once that is provided for.
"""

import os
import signal
import sys

_INTERRUPTED = 130


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Raises nothing but the interpreter's own `SystemExit`."""
    from mq.cli import command_line

    return command_line.run(arguments)


def main() -> None:
    """The entry point of the program."""
    # Whoever starts a job in the background has it ignore Ctrl-C.
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from mq.base.without_pandas import refuse_pandas
    from mq.cli.interrupts import INTERRUPTS
    from mq.cli.streams import open_streams

    if is_interruptible:
        INTERRUPTS.begin()
    open_streams()
    refuse_pandas()  # no command uses it: jobs on Spark are processes of their own
    code = run(sys.argv[1:])
    INTERRUPTS.end()
    sys.exit(code)


if __name__ == "__main__":
    main()
