"""Options that several commands share."""

from collections.abc import Callable
from math import inf
from typing import Annotated, Any, Literal

import typer

from braidmq.defaults import LONGEST_DELIVERY_TIMEOUT_SECONDS
from filer.quantities import duration_text, parse_duration_seconds, parse_size_bytes, size_text

DEFAULT_URL = "http://127.0.0.1:8080"


def size_bytes(least: int, most: float = inf) -> Callable[[Any], int]:
    """A parser of sizes in bytes, bounds included: `256MB`."""
    return _bounded(parse_size_bytes, size_text, least, most)


def duration_seconds(least: float, most: float = inf) -> Callable[[Any], float]:
    """A parser of durations in seconds, bounds included: `10s`."""
    return _bounded(parse_duration_seconds, duration_text, least, most)


def lazily(name: str) -> Callable[[typer.Context, str], list[str]]:
    """A function of `mq.cli.completion`, which is imported when a shell asks for completion."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from mq.cli import completion

        completed: list[str] = getattr(completion, name)(context, incomplete)
        return completed

    return complete


def _bounded(
    parse: Callable[[str], Any], text: Callable[[Any], str], least: float, most: float
) -> Callable[[Any], Any]:
    def parser(given: Any) -> Any:
        if not isinstance(given, str):
            return given  # the default
        try:
            value = parse(given)
        except ValueError as error:
            raise typer.BadParameter(f"{error}, not {given!r}") from error
        if not least <= value <= most:
            bounds = f"at least {text(least)}" if most == inf else f"from {text(least)} to {text(most)}"
            raise typer.BadParameter(f"it must be {bounds}, not {given!r}")
        return value

    return parser


Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="BRAIDMQ_URL",
        metavar="URL",
        help="Address of a broker, or several separated by commas.",
        show_envvar=True,
    ),
]
UrlIfGiven = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="BRAIDMQ_URL", metavar="URL", help="Address of a broker, or several separated by commas."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=duration_seconds(0.1, LONGEST_DELIVERY_TIMEOUT_SECONDS),
        metavar="DURATION",
        help="Give up when no broker has answered for this time. Default: at once if none has answered this command "
        "yet; later after 30s, a publish after 2m, and mq subscribe and mq work never.",
        show_default=False,
    ),
]
Idle = Annotated[
    float | None,
    typer.Option(
        "--idle",
        parser=duration_seconds(0.1),
        metavar="DURATION",
        help="In a group: stop when there was no message for this time. Default: wait for more.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
TopicName = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="Name of the topic.", show_default=False, autocompletion=lazily("complete_topic")
    ),
]
GroupName = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="Name of the group.", show_default=False, autocompletion=lazily("complete_group")
    ),
]
GroupOption = Annotated[
    str,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Name of the consumer group.",
        show_default=False,
        autocompletion=lazily("complete_group"),
    ),
]
OfflineStore = Annotated[
    str,
    typer.Option(
        "--store", envvar="BRAIDMQ_STORE", metavar="STORE", help="The store: a directory or s3://bucket/prefix."
    ),
]
S3Endpoint = Annotated[
    str | None,
    typer.Option(
        "--s3-endpoint", envvar="BRAIDMQ_S3_ENDPOINT", metavar="URL", help="Endpoint of an S3-compatible store."
    ),
]
S3Region = Annotated[
    str | None,
    typer.Option("--s3-region", envvar="BRAIDMQ_S3_REGION", metavar="NAME", help="Region of the bucket."),
]
S3Addressing = Annotated[
    Literal["auto", "path", "virtual"],
    typer.Option(
        "--s3-addressing",
        envvar="BRAIDMQ_S3_ADDRESSING",
        help="Where the name of the bucket goes: into the path, or before the server's name (virtual).",
    ),
]
