"""`python -m pipeline JOB …`, which `mq pipeline` becomes: the setup that precedes every other import.

Ctrl-C may come while modules are imported, and Python would then show where it was.
"""

import os
import signal
import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the program."""
    # A shell that starts a job in the background makes it ignore Ctrl-C.
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    # `mq` holds it back until here.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    from filer.refused_imports import leave_out_arrow_docs, refuse_imports

    refuse_imports("httpx._main")  # the command line of httpx, which takes longer to import than httpx itself
    leave_out_arrow_docs()
    from pipeline.interrupts import INTERRUPTS
    from pipeline.program import run

    if is_interruptible:
        INTERRUPTS.begin()
    code = run(sys.argv[1:])
    INTERRUPTS.end()
    sys.exit(code)


if __name__ == "__main__":
    main()
