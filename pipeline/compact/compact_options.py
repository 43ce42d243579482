"""The options of `mq pipeline compact`."""

from filer.quantities import duration_text, size_text
from pipeline.compact.choices import DEFAULT_OPEN_AGE_SECONDS, DEFAULT_ROLLUP_BYTES, MOST_ROLLUP_BYTES
from pipeline.options import MIB, JobParser, mebibytes_between, seconds, size_between


def add_compact_options(parser: JobParser) -> None:
    """Add the options for the size of roll-ups and the age of files."""
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--rollup-size",
        type=size_between(MIB, MOST_ROLLUP_BYTES),
        metavar="SIZE",
        dest="rollup_bytes",
        default=DEFAULT_ROLLUP_BYTES,
        help=f"largest size of a roll-up ({size_text(DEFAULT_ROLLUP_BYTES)})",
    )
    sizes.add_argument(
        "--rollup-mib",
        type=mebibytes_between(1, MOST_ROLLUP_BYTES // MIB),
        metavar="N",
        dest="rollup_bytes",
        help="the same as a number of MiB",
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing; print what would be rolled up")
    parser.add_argument(
        "--open-age",
        type=seconds,
        metavar="DURATION",
        default=DEFAULT_OPEN_AGE_SECONDS,
        help=f"in open segments, roll up only files that are older ({duration_text(DEFAULT_OPEN_AGE_SECONDS)})",
    )
