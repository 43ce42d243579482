"""Shared by the bench programs: options, progress, and the description of the machine."""

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console

_PLAIN_WIDTH = 120


def run_options(description: str | None, cases: Sequence[str], *, rounds: int, rounds_help: str) -> argparse.Namespace:
    """Parse `rounds`, `seconds` and `only` from the command line. Ends the process if they are not valid."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"{rounds_help} ({rounds})")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of requests in each round (4)")
    parser.add_argument("--only", action="append", choices=cases, metavar="CASE", help=", ".join(cases))
    options = parser.parse_args()
    if options.rounds < 1 or not 1 <= options.seconds <= 3600:
        parser.error("--rounds must be 1 or more, --seconds from 1 to 3600")
    return options


def console() -> Console:
    """The console for the table, wide enough for it even if the output is not a terminal."""
    made = Console()
    return made if made.is_terminal else Console(width=_PLAIN_WIDTH)


def about(options: argparse.Namespace) -> str:
    """A line about the machine and the run."""
    return f"{machine()}; medians of {options.rounds} rounds of {options.seconds:g} s"


def machine() -> str:
    """A description of the machine, and the date."""
    return (
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {datetime.now(UTC).date()}"
    )


def show_progress(doing: str) -> None:
    """Print on stderr what is being measured."""
    print(doing, file=sys.stderr, flush=True)
