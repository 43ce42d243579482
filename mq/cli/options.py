"""Options that several commands share."""

from typing import Annotated

import typer

DEFAULT_URL = "http://127.0.0.1:8080"

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
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
