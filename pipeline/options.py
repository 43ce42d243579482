"""Options that several jobs share, and the parsing of their values."""

import argparse
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeAlias, get_args

from braidmq.defaults import DEFAULT_URL, LONGEST_DELIVERY_TIMEOUT_SECONDS
from filer.quantities import duration_text, parse_duration_seconds, parse_size_bytes, size_text
from filer.stores.store_address import AddressingStyle, StoreAddress
from pipeline.errors import WrongUsage

if TYPE_CHECKING:
    from pipeline.workers import Workers

MIB = 1024 * 1024
_MASTER = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")
Command: TypeAlias = "Callable[[Workers, argparse.Namespace], None]"


class JobParser(argparse.ArgumentParser):
    """A parser that raises its errors as exceptions."""

    def error(self, message: str) -> NoReturn:
        """Raises `WrongUsage`."""
        raise WrongUsage(f"{message}; see {self.prog} --help")


def add_job(jobs: "argparse._SubParsersAction[JobParser]", name: str, command: Command, help_line: str) -> JobParser:
    """Return the parser of a job that reads a topic's files."""
    parser: JobParser = jobs.add_parser(name, help=help_line, description=help_line)
    parser.set_defaults(job=name, command=command)
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic")
    add_common_options(parser)
    _add_store_options(parser)
    return parser


def add_common_options(parser: JobParser) -> None:
    """The options of every job."""
    parser.add_argument("--json", action="store_true", help="JSON for machines instead of text for people")
    parser.add_argument(
        "--master", type=master, metavar="URL", help="the Spark cluster; all of this machine by default"
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        default=os.environ.get("BRAIDMQ_URL", DEFAULT_URL),
        help="address of a broker, or several separated by commas [env var: BRAIDMQ_URL]",
    )
    parser.add_argument(
        "--timeout",
        type=timeout,
        metavar="DURATION",
        help="give up when no broker has answered for this time; by default at once if none has answered this job yet, "
        "later after 30s, and while files are loaded after 2m",
    )


def _add_store_options(parser: JobParser) -> None:
    env = os.environ.get
    parser.add_argument(
        "--store",
        metavar="URL",
        default=env("BRAIDMQ_STORE"),
        help="the brokers' store, as Spark's tasks reach it; by default as the broker names it "
        "[env var: BRAIDMQ_STORE]",
    )
    as_broker = "by default as the broker has it, unless --store is given"
    parser.add_argument(
        "--s3-endpoint",
        metavar="URL",
        default=env("BRAIDMQ_S3_ENDPOINT"),
        help=f"endpoint of an S3-compatible store; {as_broker}",
    )
    parser.add_argument(
        "--s3-region", metavar="NAME", default=env("BRAIDMQ_S3_REGION"), help=f"region of the bucket; {as_broker}"
    )
    parser.add_argument(
        "--s3-addressing",
        choices=get_args(AddressingStyle),
        default=env("BRAIDMQ_S3_ADDRESSING"),
        help=f"where the name of the bucket goes: into the path, or before the server's name; {as_broker}",
    )


def store_of(options: argparse.Namespace) -> StoreAddress:
    """Return the store in the options, else the one that holds the topic's files, reached as a broker does.

    Options take precedence. Raises `JobFailed` if neither is known.
    """
    # Imported here: a wrong option is reported sooner without.
    from pipeline.brokers import store_of_files

    if options.store:
        found = StoreAddress(options.store)
    else:
        found = store_of_files(options.url, options.topic, options.timeout)
    return StoreAddress(
        found.url,
        options.s3_endpoint or found.endpoint_url,
        options.s3_region or found.region,
        options.s3_addressing or ("auto" if options.s3_endpoint else found.addressing_style),
    )


def master(text: str) -> str:
    """Parse the address of a Spark cluster. For a wrong address Spark would print a page of Java errors."""
    if not _MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form local[N], spark://HOST:PORT, yarn or k8s://URL")
    return text


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least `least`."""
    return between(least, None)


def between(least: int, most: int | None) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`, bounds included."""
    bounds = f"of {least} or more" if most is None else f"from {least} to {most}"

    def number(text: str) -> int:
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else -1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {bounds}")
        return value

    return number


def mebibytes_between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of MiB, bounds included, into bytes."""
    number = between(least, most)
    return lambda text: number(text) * MIB


def size_between(least_bytes: int, most_bytes: int) -> Callable[[str], int]:
    """Return a parser of sizes in bytes, bounds included: `256MiB`."""

    def size_bytes(text: str) -> int:
        try:
            found = parse_size_bytes(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}, not {text!r}") from error
        if not least_bytes <= found <= most_bytes:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not from {size_text(least_bytes)} to {size_text(most_bytes)}"
            )
        return found

    return size_bytes


def seconds(text: str) -> float:
    """Parse a duration in seconds: `30s`, `5m`."""
    try:
        return parse_duration_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, not {text!r}") from error


def timeout(text: str) -> float:
    """Parse how long to wait for brokers."""
    found = seconds(text)
    if not 0.1 <= found <= LONGEST_DELIVERY_TIMEOUT_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not from 0.1s to {duration_text(LONGEST_DELIVERY_TIMEOUT_SECONDS)}"
        )
    return found
