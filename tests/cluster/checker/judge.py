"""Judge the history of a failed run: `python -m tests.cluster.checker.judge history.json`."""

import sys
from pathlib import Path

from tests.cluster.checker.history import History, NotAHistory
from tests.cluster.checker.verdict import judge, summary

SHOWN = 100
USAGE = "usage: python -m tests.cluster.checker.judge HISTORY.json"


def main(arguments: list[str]) -> int:
    """Print the verdict. Returns 0 if it is clean, 1 if it is not, 2 if there is nothing to judge."""
    if len(arguments) != 1:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        history = History.read(Path(arguments[0]))
    except (OSError, NotAHistory) as error:
        print(error, file=sys.stderr)
        return 2
    complaints = judge(history)
    print(summary(history))
    for complaint in complaints[:SHOWN]:
        print(complaint)
    print(f"{len(complaints)} complaints" if complaints else "clean")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
