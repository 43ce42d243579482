"""The program `mq`: the setup before all other imports, and the exit after the last line of a command.

Ctrl-C may come while modules are imported, which takes most of the time of a short command. Python would then print a
stack trace. So this module imports next to nothing, and the rest only once that case is handled.
"""

import gc
import os
import signal
import sys

_INTERRUPTED = 130
# A command makes some 150,000 objects before it begins, nearly all of them modules and their parts. By default Python
# would look for garbage among them a hundred times, which takes a tenth of the start.
_OBJECTS_BETWEEN_COLLECTIONS = 200_000
_NEVER_USED = (
    "pandas",  # jobs on Spark, which need it, are processes of their own
    "httpx._main",  # the command line of httpx
    "zstandard",  # httpx would accept answers in it; brokers send none
)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Raises nothing but the interpreter's own `SystemExit`."""
    from mq.cli import command_line

    return command_line.run(arguments)


def refuse_what_is_never_used() -> None:
    """Keep out modules that libraries would import needlessly."""
    from filer.refused_imports import leave_out_arrow_docs, refuse_imports

    refuse_imports(*_NEVER_USED)
    leave_out_arrow_docs()


def main() -> None:
    """The entry point of the program."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # A shell that starts a job in the background makes it ignore Ctrl-C.
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from mq.cli.interrupts import INTERRUPTS
    from mq.cli.own_environment import set_own_variables
    from mq.cli.streams import open_streams

    signals = [signal.SIGINT] if is_interruptible else []
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signals.append(signal.SIGTERM)
    INTERRUPTS.begin(signals)
    open_streams()
    refuse_what_is_never_used()
    set_own_variables()
    code = INTERRUPTS.end(run(sys.argv[1:]))
    # All objects go with the process. Python would look for garbage among them first, for a fifth of a short command.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
