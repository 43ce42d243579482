"""`python -m pipeline JOB …`: run a job and print its errors as one line. `mq pipeline` and spark-submit start it."""

import sys
from collections.abc import Sequence

from filer.errors import BraidError
from pipeline.commands import parse, run
from pipeline.errors import WrongUsage
from pipeline.output import say

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run one job; returns the exit code."""
    try:
        run(parse(arguments))
    except WrongUsage as error:
        say(str(error))
        return WRONG_USAGE
    except BraidError as error:
        say(" ".join(str(error).split()))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
