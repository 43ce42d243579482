"""The options of `mq pipeline skew`."""

from typing import get_args

from pipeline.options import JobParser, at_least
from pipeline.skew.choices import Measure


def add_skew_options(parser: JobParser) -> None:
    """Add the options for what to count and how much to show."""
    parser.add_argument(
        "--parts",
        type=at_least(1),
        metavar="N",
        help="number of parts to suggest; by default as many as segments are open",
    )
    parser.add_argument(
        "--hottest", type=at_least(0), metavar="N", default=10, help="number of hottest slots to show (10)"
    )
    parser.add_argument(
        "--by", choices=get_args(Measure), default="messages", help="what to cut by: messages (the default) or bytes"
    )
