"""What the two bench programs share: their options, and how they say what they do and on what."""

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console

_PLAIN_WIDTH = 120


def run_options(description: str | None, cases: Sequence[str], *, rounds: int, rounds_help: str) -> argparse.Namespace:
    """`rounds`, `seconds` and `only` from the command line; ends the process where they make no sense."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"{rounds_help} ({rounds})")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of load in each round (4)")
    parser.add_argument("--only", action="append", choices=cases, metavar="CASE", help=", ".join(cases))
    options = parser.parse_args()
    if options.rounds < 1 or not 1 <= options.seconds <= 3600:
        parser.error("--rounds must be 1 or more, --seconds from 1 to 3600")
    return options


def console() -> Console:
    """Where the table goes; wide enough for it where that is no terminal."""
    made = Console()
    return made if made.is_terminal else Console(width=_PLAIN_WIDTH)


def about(options: argparse.Namespace) -> str:
    """The machine and the run, in one line."""
    return f"{machine()}; medians of {options.rounds} rounds of {options.seconds:g} s"


def machine() -> str:
    """What the bench runs on, and when."""
    return (
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {datetime.now(UTC).date()}"
    )


def tell(doing: str) -> None:
    """Say on stderr what is being measured."""
    print(doing, file=sys.stderr, flush=True)
